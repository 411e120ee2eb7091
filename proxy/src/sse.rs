//! Server-sent events out of a byte stream that may be cut anywhere.
//!
//! The decoder keeps each event's own bytes, so that what nobody means to change passes on as it came.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use memchr::memchr2_iter;

/// One event with its blank line, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event(Bytes);

/// More came without a blank line than an event can hold.
#[derive(Debug, thiserror::Error)]
#[error("an event of the stream is longer than {0} bytes")]
pub(crate) struct EventTooLong(usize);

/// Far above the largest event seen of vLLM (the first chunk holds all prompt ids: 7 MB for a million tokens).
const LONGEST_EVENT: usize = 64 << 20;

/// Cuts a byte stream into events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    /// How far the buffer has been searched for the blank line that ends its first event.
    searched: usize,
}

impl Decoder {
    /// Takes the next bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > LONGEST_EVENT && self.end_of_event().is_none() {
            return Err(EventTooLong(LONGEST_EVENT));
        }
        Ok(())
    }

    /// The next whole event.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let end = self.end_of_event()?;
        self.searched = 0;
        Some(Event(self.buffer.split_to(end).freeze()))
    }

    /// What came after the last whole event: empty at the end of a sound stream.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.searched = 0;
        self.buffer.split().freeze()
    }

    /// A line ends with LF, CR or CR LF, and an empty line ends the event.
    fn end_of_event(&mut self) -> Option<usize> {
        let bytes = &self.buffer;
        let mut line_start = self.searched;
        let breaks = memchr2_iter(b'\n', b'\r', bytes.get(self.searched..)?).map(|at| at + self.searched);
        for at in breaks {
            if at < line_start {
                continue; // the LF of a CR LF
            }
            let is_cr = bytes.get(at) == Some(&b'\r');
            if is_cr && at + 1 == bytes.len() {
                break; // an LF may follow: the next bytes tell
            }
            let is_crlf = is_cr && bytes.get(at + 1) == Some(&b'\n');
            let next_line = at + 1 + usize::from(is_crlf);
            if at == line_start {
                return Some(next_line);
            }
            line_start = next_line;
        }
        self.searched = line_start;
        None
    }
}

impl Event {
    /// The event as it came.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Whether it is UTF-8, as every event of vLLM is.
    pub(crate) fn is_text(&self) -> bool {
        std::str::from_utf8(&self.0).is_ok()
    }

    /// The event's data: its `data` lines, joined by line feeds where there are several. None for an event without
    /// (a comment), or if it is not UTF-8.
    pub(crate) fn data(&self) -> Option<Cow<'_, str>> {
        let text = std::str::from_utf8(&self.0).ok()?;
        let mut lines = text.split(['\n', '\r']).filter_map(|line| {
            let value = line.strip_prefix("data:")?;
            Some(value.strip_prefix(' ').unwrap_or(value))
        });
        let first = lines.next()?;
        let Some(second) = lines.next() else { return Some(Cow::Borrowed(first)) };
        let rest = lines.fold(format!("{first}\n{second}"), |joined, line| joined + "\n" + line);
        Some(Cow::Owned(rest))
    }
}

/// Appends an event with this data to `out`.
pub(crate) fn write_event(data: &[u8], out: &mut Vec<u8>) {
    for line in data.split(|&b| b == b'\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events_of(pieces: &[&[u8]]) -> (Vec<Event>, Bytes) {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(piece).unwrap();
            events.extend(std::iter::from_fn(|| decoder.next_event()));
        }
        (events, decoder.rest())
    }

    #[test]
    fn each_event_keeps_its_bytes() {
        let (events, rest) = events_of(&[b"data: a\n\n: ping\n\ndata: b\r\n\r\ndata:c\rdata: d\r\rdata: x"]);
        let data: Vec<_> = events.iter().map(Event::data).collect();
        assert_eq!(data, [Some("a".into()), None, Some("b".into()), Some("c\nd".into())]);
        assert_eq!(events[2].bytes().as_ref(), b"data: b\r\n\r\n");
        assert_eq!(rest.as_ref(), b"data: x");
    }

    #[test]
    fn a_carriage_return_at_the_end_of_a_read_waits_for_its_line_feed() {
        let (events, rest) = events_of(&[b"data: a\r", b"\n\r", b"\n", b"data: b\n\n"]);
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].bytes().as_ref(), b"data: a\r\n\r\n");
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn the_cuts_of_the_stream_do_not_matter(
            stream in prop::collection::vec(prop::sample::select(&b"da:\n\r \"x\xff"[..]), 0..80),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            at.extend([0, stream.len()]);
            at.sort_unstable();
            let pieces: Vec<_> = at.windows(2).map(|w| &stream[w[0]..w[1]]).collect();
            let (whole, cut) = (events_of(&[&stream]), events_of(&pieces));
            prop_assert_eq!(&whole, &cut);
            let mut joined: Vec<u8> = cut.0.iter().flat_map(|event| event.bytes().to_vec()).collect();
            joined.extend_from_slice(&cut.1);
            prop_assert_eq!(joined, stream);
        }

        #[test]
        fn written_data_is_read_back(lines in prop::collection::vec("[^\n\r]{0,9}", 1..4)) {
            let data = lines.join("\n");
            let mut out = Vec::new();
            write_event(data.as_bytes(), &mut out);
            let (events, rest) = events_of(&[&out]);
            prop_assert!(rest.is_empty());
            prop_assert_eq!(events[0].data().unwrap(), data);
        }
    }
}
