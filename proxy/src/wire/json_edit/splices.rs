//! Edits of a text: replacements of its slices, and insertions. Everything between them is copied as it is.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

/// Returns the range of `value`, which must be a slice of this text.
pub(crate) fn range_in(text: &str, value: &str) -> Range<usize> {
    // The address of the slice determines its position in the text.
    let start = (value.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    let range = start..start.wrapping_add(value.len());
    debug_assert!(text.get(range.clone()) == Some(value), "a value of another text");
    range
}

/// Replacements in one text, at separate positions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Splices<'a> {
    text: &'a str,
    changes: SmallVec<[(Range<usize>, Cow<'static, str>); 4]>,
}

impl<'a> Splices<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        Self { text, changes: SmallVec::new() }
    }

    /// Replaces `value`, which must be a slice of this text, by `json`.
    pub(crate) fn replace(&mut self, value: &str, json: impl Into<Cow<'static, str>>) {
        let range = range_in(self.text, value);
        debug_assert!(!self.changes.iter().any(|(other, _)| *other == range), "one value is edited twice");
        self.changes.push((range, json.into()));
    }

    pub(super) fn insert(&mut self, at: usize, json: String) {
        self.changes.push((at..at, json.into()));
    }

    pub(super) fn has_insertion_at(&self, at: usize) -> bool {
        self.changes.iter().any(|(range, _)| *range == (at..at))
    }

    /// Whether there are no edits.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the edited text, or `None` if there are no edits.
    pub(crate) fn edited(self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let added: usize = self.changes.iter().map(|(_, json)| json.len()).sum();
        let mut out = String::with_capacity(self.text.len() + added);
        self.parts(|part| out.push_str(part));
        Some(out)
    }

    /// Appends the edited text to `out`.
    pub(crate) fn write_to(self, out: &mut Vec<u8>) {
        self.parts(|part| out.extend_from_slice(part.as_bytes()));
    }

    /// Calls `part` with each part of the edited text, in order.
    fn parts(mut self, mut part: impl FnMut(&str)) {
        // The sort is stable, so insertions at the same position retain their order.
        self.changes.sort_by_key(|(range, _)| range.start);
        let mut copied = 0;
        for (range, json) in &self.changes {
            part(self.text.get(copied..range.start).unwrap_or_default());
            part(json);
            copied = range.end;
        }
        part(self.text.get(copied..).unwrap_or_default());
    }
}
