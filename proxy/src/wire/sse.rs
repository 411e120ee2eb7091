//! Decodes server-sent events from a byte stream that may be cut at any position.
//!
//! Upstream mostly sends whole events, one or several per chunk: they are read in place and never copied. Only the
//! beginning of an incomplete event is buffered.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use memchr::{memchr2, memchr2_iter};
use smallvec::SmallVec;

/// The stream has more bytes without a blank line than the limit for an event.
#[derive(Debug, thiserror::Error)]
#[error("an event of the stream is longer than {0} bytes")]
pub(crate) struct EventTooLong(usize);

/// Maximum length of an event, in bytes. The largest events of vLLM are far below: a first chunk with all prompt ids
/// has 7 MB for a million tokens.
const LONGEST_EVENT: usize = 64 << 20;

/// Splits a byte stream into events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of an incomplete event.
    begun: BytesMut,
    /// The length of `begun` that was already searched for the blank line.
    searched: usize,
}

/// The complete events of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// The bytes of the events, unchanged and in order.
    pub(crate) bytes: Bytes,
    /// The range of each event in `bytes`, including its blank line.
    pub(crate) events: SmallVec<[Range<usize>; 2]>,
}

impl Decoder {
    /// Takes the next bytes of the stream and returns the complete events. The bytes after them are buffered.
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
        // The rest is copied: a slice of a few bytes would otherwise retain the memory of a long event.
        self.begun.extend_from_slice(begun.get(end..).unwrap_or_default());
        begun.truncate(end);
        Ok(Arrived { bytes: begun.freeze(), events })
    }

    fn events_in(&mut self, bytes: &[u8]) -> SmallVec<[Range<usize>; 2]> {
        let mut events = SmallVec::new();
        let (mut start, mut searched) = (0, self.searched);
        while let Some(end) = end_of_event(bytes, &mut searched) {
            events.push(start..end);
            (start, searched) = (end, end);
        }
        self.searched = searched - start;
        events
    }

    /// Returns and removes the bytes after the last complete event. They are empty at the end of a well-formed stream.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.searched = 0;
        self.begun.split().freeze()
    }
}

/// Returns the position after the blank line that ends the event. A line ends with LF, CR or CR LF. `searched` is the
/// start of a line, and advances to the start of the last incomplete line.
fn end_of_event(bytes: &[u8], searched: &mut usize) -> Option<usize> {
    let mut line_start = *searched;
    let breaks = memchr2_iter(b'\n', b'\r', bytes.get(line_start..)?).map(|at| at + *searched);
    for at in breaks {
        if at < line_start {
            continue; // The LF belongs to a CR LF.
        }
        let is_cr = bytes.get(at) == Some(&b'\r');
        if is_cr && at + 1 == bytes.len() {
            break; // An LF may follow in the next chunk.
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

/// Returns the data of an event: its `data` lines, joined by line feeds. Returns `None` for an event without data (a
/// comment) or with invalid UTF-8.
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

/// Returns the line before the blank line if it is the only one. vLLM writes events in this form.
fn only_line(text: &str) -> Option<&str> {
    let line = text.strip_suffix("\n\n")?;
    memchr2(b'\n', b'\r', line.as_bytes()).is_none().then_some(line)
}

/// Appends an event with one line of data, which `write` appends without a line feed.
pub(crate) fn write_line(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"data: ");
    write(out);
    out.extend_from_slice(b"\n\n");
}

/// Appends an event with this data to `out`. Each line of the data becomes a `data` line.
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

    #[test]
    fn fuzz_sse() {
        rolltap_testing::fuzz!("sse", |stream| {
            let whole = events_of(&[stream]);
            for pieces in rolltap_testing::fuzz::cuts(stream) {
                assert_eq!(events_of(&pieces), whole);
            }
            assert_eq!([&whole.0.concat()[..], &whole.1[..]].concat(), stream);
            // The data of an event is data again if it is written as an event.
            for data in whole.0.iter().filter_map(|event| data(event)) {
                let mut out = Vec::new();
                write_event(data.as_bytes(), &mut out);
                assert_eq!(super::data(&out), Some(data));
            }
        });
    }
}
