//! Edits one chunk of upstream's answer for the agent. The chunk is copied only if some part changes.

use std::ops::Range;

use bytes::Bytes;

/// One chunk on its way to the agent, edited part by part from the start.
#[derive(Debug)]
pub(crate) struct ChunkRewriter {
    read: Bytes,
    /// The number of bytes from the start of the chunk that are forwarded unchanged.
    as_it_came: usize,
    changed: Option<Vec<u8>>,
}

impl ChunkRewriter {
    /// Starts with the chunk `read`. The caller then keeps or replaces its parts in order.
    pub(crate) fn of(read: Bytes) -> Self {
        Self { read, as_it_came: 0, changed: None }
    }

    /// Forwards the next part unchanged.
    pub(crate) fn keep(&mut self, part: Range<usize>) {
        match &mut self.changed {
            None => self.as_it_came = part.end,
            Some(out) => out.extend_from_slice(self.read.get(part).unwrap_or_default()),
        }
    }

    /// Returns the buffer for the replacement of the next part. An empty replacement removes the part.
    pub(crate) fn instead(&mut self) -> &mut Vec<u8> {
        // Only the first change copies the bytes before it. Later parts are appended.
        self.changed.get_or_insert_with(|| {
            let mut out = Vec::with_capacity(self.read.len());
            out.extend_from_slice(self.read.get(..self.as_it_came).unwrap_or_default());
            out
        })
    }

    /// Returns the number of bytes for the agent so far.
    pub(crate) fn length(&self) -> usize {
        self.changed.as_ref().map_or(self.as_it_came, Vec::len)
    }

    /// Returns the bytes for the agent.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.changed.map_or_else(|| self.read.slice(..self.as_it_came), Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_is_not_copied() {
        let read = Bytes::from_static(b"abcd");
        let mut passing = ChunkRewriter::of(read.clone());
        passing.keep(0..1);
        passing.keep(1..3);
        let passed = passing.into_bytes();
        assert_eq!((passed.as_ref(), passed.as_ptr()), (&b"abc"[..], read.as_ptr()));
    }

    #[test]
    fn a_change_keeps_what_stands_around_it() {
        let mut passing = ChunkRewriter::of(Bytes::from_static(b"abcd"));
        passing.keep(0..1);
        passing.instead().extend_from_slice(b"BB");
        passing.keep(2..3);
        passing.instead();
        assert_eq!(passing.into_bytes().as_ref(), b"aBBc");
    }
}
