//! Stores the output of processes that may write without end.

use std::collections::VecDeque;

use super::OUTPUT_LIMIT;
use crate::common::plain::plain;

/// The first bytes of a stream, at most `OUTPUT_LIMIT`.
#[derive(Debug, Default)]
pub(super) struct Head {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Head {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = OUTPUT_LIMIT.saturating_sub(self.bytes.len());
        self.truncated |= bytes.len() > room;
        self.bytes.extend(bytes.iter().take(room));
    }

    pub(super) fn truncated(&self) -> bool {
        self.truncated
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The last lines of a log, as plain text for an error message.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    lines: VecDeque<String>,
    open: String,
}

impl Tail {
    const LINES: usize = 20;
    /// The length in bytes at which a line is truncated. A progress bar may be one endless line.
    const LINE_LENGTH: usize = 2000;

    pub(crate) fn push(&mut self, text: &str) {
        for part in text.split_inclusive(['\n', '\r']) {
            let line = part.trim_end_matches(['\n', '\r']);
            let room = Self::LINE_LENGTH.saturating_sub(self.open.len());
            self.open.push_str(line.get(..line.floor_char_boundary(room)).unwrap_or_default());
            if line.len() != part.len() {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = plain(&std::mem::take(&mut self.open));
        // Blank lines would displace lines with information.
        if line.trim().is_empty() {
            return;
        }
        if self.lines.len() == Self::LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Returns the lines, indented, without a final newline.
    pub(crate) fn text(&self) -> String {
        let open = Some(plain(&self.open)).filter(|open| !open.trim().is_empty());
        let skipped = (self.lines.len() + usize::from(open.is_some())).saturating_sub(Self::LINES);
        self.lines
            .iter()
            .chain(&open)
            .skip(skipped)
            .map(|line| format!("  {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_the_first_bytes_and_says_that_there_were_more() {
        let mut head = Head::default();
        head.push(&vec![1; OUTPUT_LIMIT - 1]);
        assert!(!head.truncated());
        head.push(&[2, 3]);
        assert!(head.truncated());
        assert_eq!((head.as_bytes().len(), head.as_bytes().last()), (OUTPUT_LIMIT, Some(&2)));
    }

    #[test]
    fn a_tail_keeps_the_last_lines_however_they_were_cut() {
        let mut tail = Tail::default();
        for number in 0..30 {
            tail.push(&format!("line {number}"));
            tail.push("\n\n");
        }
        tail.push("without an end");
        let text = tail.text();
        assert_eq!(text.lines().count(), 20);
        assert!(text.starts_with("  line 11\n") && text.ends_with("  line 29\n  without an end"), "{text}");
    }

    #[test]
    fn a_tail_has_no_colours_however_they_were_cut() {
        let mut tail = Tail::default();
        for part in ["\u{1b}[9", "1mred\u{1b}[0m\n", "\u{1b}[1", "mbold"] {
            tail.push(part);
        }
        assert_eq!(tail.text(), "  red\n  bold");
    }

    #[test]
    fn a_line_without_end_does_not_fill_memory() {
        let mut tail = Tail::default();
        for _ in 0..10_000 {
            tail.push("=");
        }
        assert_eq!(tail.text().len(), Tail::LINE_LENGTH + 2);
    }

    proptest::proptest! {
        #[test]
        fn no_line_is_longer_than_the_limit(parts in proptest::collection::vec("[a-zäß漢🦀]{0,700}", 1..9)) {
            let mut tail = Tail::default();
            parts.iter().for_each(|part| tail.push(part));
            let (text, given) = (tail.text(), parts.concat().len());
            let length = text.trim_start_matches(' ').len();
            proptest::prop_assert!(length <= Tail::LINE_LENGTH);
            // A character that does not fit is left out, and it has at most four bytes.
            proptest::prop_assert!(length + 3 >= given.min(Tail::LINE_LENGTH));
        }
    }
}
