//! Server-sent events out of a byte stream that may be cut anywhere.
//!
//! Upstream mostly sends whole events, one or several at a time: those are looked at where they lie and never copied. Only
//! the beginning of an event whose end has not come is set aside.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use memchr::{memchr2, memchr2_iter};

/// More came without a blank line than an event can hold.
#[derive(Debug, thiserror::Error)]
#[error("an event of the stream is longer than {0} bytes")]
pub(crate) struct EventTooLong(usize);

/// Far above the largest event seen of vLLM (the first chunk holds all prompt ids: 7 MB for a million tokens).
const LONGEST_EVENT: usize = 64 << 20;

/// Cuts a byte stream into events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of an event.
    begun: BytesMut,
    /// How far it has been searched for the blank line that ends it.
    searched: usize,
}

/// Whole events that came.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// The events one after the other, as they came.
    pub(crate) bytes: Bytes,
    /// Where each of them lies, its blank line included.
    pub(crate) events: Vec<Range<usize>>,
}

impl Decoder {
    /// Takes the next bytes of the stream. What of them is no whole event is set aside.
    pub(crate) fn take(&mut self, bytes: Bytes) -> Result<Arrived, EventTooLong> {
        if self.begun.is_empty() {
            let events = self.events_in(&bytes);
            let end = events.last().map_or(0, |last| last.end);
            self.begun.extend_from_slice(bytes.get(end..).unwrap_or_default());
            return Ok(Arrived { bytes: bytes.slice(..end), events });
        }
        let mut begun = std::mem::take(&mut self.begun);
        begun.extend_from_slice(&bytes);
        let events = self.events_in(&begun);
        let Some(end) = events.last().map(|last| last.end) else {
            if begun.len() > LONGEST_EVENT {
                return Err(EventTooLong(LONGEST_EVENT));
            }
            self.begun = begun;
            return Ok(Arrived::default());
        };
        // Copied, because a few bytes would otherwise hold the memory of a long event.
        self.begun.extend_from_slice(begun.get(end..).unwrap_or_default());
        begun.truncate(end);
        Ok(Arrived { bytes: begun.freeze(), events })
    }

    fn events_in(&mut self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut events = Vec::new();
        let (mut start, mut searched) = (0, self.searched);
        while let Some(end) = end_of_event(bytes, &mut searched) {
            events.push(start..end);
            (start, searched) = (end, end);
        }
        self.searched = searched - start;
        events
    }

    /// What came after the last whole event: empty at the end of a sound stream.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.searched = 0;
        self.begun.split().freeze()
    }
}

/// A line ends with LF, CR or CR LF, and an empty line ends the event. `searched` stands at the start of a line.
fn end_of_event(bytes: &[u8], searched: &mut usize) -> Option<usize> {
    let mut line_start = *searched;
    let breaks = memchr2_iter(b'\n', b'\r', bytes.get(line_start..)?).map(|at| at + *searched);
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
    *searched = line_start;
    None
}

/// An event's data: its `data` lines, joined by line feeds where there are several. None for an event without (a
/// comment), or if it is not UTF-8.
pub(crate) fn data(event: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(event).ok()?;
    if let Some(value) = text.strip_prefix("data: ").and_then(only_line) {
        return Some(Cow::Borrowed(value));
    }
    let mut lines = text.split(['\n', '\r']).filter_map(|line| {
        let value = line.strip_prefix("data:")?;
        Some(value.strip_prefix(' ').unwrap_or(value))
    });
    let first = lines.next()?;
    let Some(second) = lines.next() else { return Some(Cow::Borrowed(first)) };
    let rest = lines.fold(format!("{first}\n{second}"), |joined, line| joined + "\n" + line);
    Some(Cow::Owned(rest))
}

/// The line in front of the blank one, where there is no other: vLLM's form.
fn only_line(text: &str) -> Option<&str> {
    let line = text.strip_suffix("\n\n")?;
    memchr2(b'\n', b'\r', line.as_bytes()).is_none().then_some(line)
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

    fn events_of(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Bytes) {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            let arrived = decoder.take(Bytes::copy_from_slice(piece)).unwrap();
            events.extend(arrived.events.into_iter().map(|range| arrived.bytes[range].to_vec()));
        }
        (events, decoder.rest())
    }

    #[test]
    fn each_event_keeps_its_bytes() {
        let (events, rest) = events_of(&[b"data: a\n\n: ping\n\ndata: b\r\n\r\ndata:c\rdata: d\r\rdata: x"]);
        let data: Vec<_> = events.iter().map(|event| data(event)).collect();
        assert_eq!(data, [Some("a".into()), None, Some("b".into()), Some("c\nd".into())]);
        assert_eq!(events[2], b"data: b\r\n\r\n");
        assert_eq!(rest.as_ref(), b"data: x");
    }

    #[test]
    fn a_carriage_return_at_the_end_of_a_read_waits_for_its_line_feed() {
        let (events, rest) = events_of(&[b"data: a\r", b"\n\r", b"\n", b"data: b\n\n"]);
        assert_eq!(events.len(), 2);
        assert_eq!(events[0], b"data: a\r\n\r\n");
        assert!(rest.is_empty());
    }

    #[test]
    fn whole_events_are_handed_on_uncopied() {
        let came = Bytes::from_static(b"data: a\n\ndata: b\n\ndata: c");
        let mut decoder = Decoder::default();
        let arrived = decoder.take(came.clone()).unwrap();
        assert_eq!((arrived.bytes.as_ptr(), &arrived.events[..]), (came.as_ptr(), &[0..9, 9..18][..]));
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
            let mut joined: Vec<u8> = cut.0.concat();
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
            prop_assert_eq!(super::data(&events[0]).unwrap(), data);
        }
    }
}
