//! Shortens a long text for the model to its beginning and its end.

use std::fmt;

/// The maximal size in bytes of a terminal text that is shown whole (Terminus-2's limit). A longer text is shown as
/// half of this from either end.
pub(crate) const LIMIT: usize = 10_000;

/// A text, possibly with a gap, that is displayed whole or as its first and last [`LIMIT`]/2 bytes.
pub(crate) struct Clipped<'a> {
    pub(crate) front: &'a str,
    /// The number of dropped bytes between front and back. If it is not 0, front and back are each at least half the
    /// limit long.
    pub(crate) missing: usize,
    pub(crate) back: &'a str,
}

impl<'a> Clipped<'a> {
    pub(crate) fn whole(text: &'a str) -> Self {
        Self { front: text, missing: 0, back: "" }
    }
}

impl fmt::Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.front.len() + self.missing + self.back.len();
        if total <= LIMIT {
            return write!(f, "{}{}", self.front, self.back);
        }
        let first = first_bytes(self.front, LIMIT / 2);
        // A text without a gap and without a back has its end in `front`.
        let last = if self.missing == 0 && self.back.is_empty() {
            last_bytes(self.front, LIMIT / 2)
        } else {
            last_bytes(self.back, LIMIT / 2)
        };
        let left_out = total - first.len() - last.len();
        write!(f, "{first}\n[... {left_out} bytes of output left out here ...]\n{last}")
    }
}

/// Returns the longest prefix of `text` with at most `limit` bytes.
fn first_bytes(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or(text)
}

/// Returns the longest suffix of `text` with at most `limit` bytes.
fn last_bytes(text: &str, limit: usize) -> &str {
    text.get(text.ceil_char_boundary(text.len().saturating_sub(limit))..).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_at_the_limit_is_whole_and_one_byte_more_is_cut() {
        let text = "x".repeat(LIMIT);
        assert_eq!(Clipped::whole(&text).to_string(), text);
        let longer = format!("{text}y");
        let cut = Clipped::whole(&longer).to_string();
        assert!(cut.contains("[... 1 bytes of output left out here ...]"), "{cut}");
        assert!(cut.ends_with("xy"));
    }

    proptest! {
        #[test]
        fn both_ends_are_kept_and_the_count_is_right(text in "[aé日🦀\n]{0,9000}") {
            let cut = Clipped::whole(&text).to_string();
            if text.len() <= LIMIT {
                prop_assert_eq!(cut, text);
            } else {
                let (first, rest) = cut.split_once("\n[... ").unwrap();
                let (count, last) = rest.split_once(" bytes of output left out here ...]\n").unwrap();
                prop_assert!(text.starts_with(first) && text.ends_with(last));
                prop_assert!(first.len() <= LIMIT / 2 && first.len() > LIMIT / 2 - 4);
                prop_assert!(last.len() <= LIMIT / 2 && last.len() > LIMIT / 2 - 4);
                prop_assert_eq!(count.parse::<usize>().unwrap(), text.len() - first.len() - last.len());
            }
        }
    }
}
