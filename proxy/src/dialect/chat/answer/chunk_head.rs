//! The text with which each chunk of a stream begins.
//!
//! vLLM writes the same members before the choices of each chunk: id, object, time and model. Their text is compared with that
//! of the chunk before, which is faster than a scan.

use std::ops::Range;

use crate::wire::json_edit::range_in;

/// The longest remembered text, in bytes. It includes the name of the model.
const LONGEST: usize = 1024;

/// The text of an earlier chunk up to the colon of its choices. It has neither an error nor a prompt. Empty before the first
/// chunk.
#[derive(Debug, Default)]
pub(super) struct ChunkHead {
    text: String,
    /// The range of the model's JSON text.
    model: Option<Range<usize>>,
}

/// The part of a chunk that is the same as in the chunk before.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownHead<'a> {
    /// The position after the colon of the choices.
    pub(super) end: usize,
    /// The JSON text of the model, which is not `null`.
    pub(super) model: Option<&'a str>,
}

impl ChunkHead {
    /// Returns the head of this chunk if it is the remembered one.
    pub(super) fn known<'a>(&self, chunk: &'a str) -> Option<KnownHead<'a>> {
        let is_known = !self.text.is_empty() && chunk.as_bytes().starts_with(self.text.as_bytes());
        let model = || self.model.clone().and_then(|model| chunk.get(model));
        is_known.then(|| KnownHead { end: self.text.len(), model: model() })
    }

    /// Remembers the first `end` bytes of a chunk. `model` is a slice of them.
    pub(super) fn remember(&mut self, chunk: &str, end: usize, model: Option<&str>) {
        self.text.clear();
        let text = chunk.get(..end).filter(|text| text.len() <= LONGEST).unwrap_or_default();
        self.text.push_str(text);
        self.model = model.map(|model| range_in(chunk, model));
    }
}
