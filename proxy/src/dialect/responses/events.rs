//! The events of a stream, numbered, in the form of the wire.

use serde::Serialize;

/// Writes events and counts them.
#[derive(Debug, Default)]
pub(super) struct Events {
    written: u64,
}

/// A piece of text that an item grows by.
#[derive(Serialize)]
pub(super) struct Delta<'a> {
    pub(super) item_id: &'a str,
    pub(super) output_index: usize,
    #[serde(flatten)]
    pub(super) part: PartIndex,
    pub(super) delta: &'a str,
}

/// Which part of its item an event is about: nothing for items that have no parts.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct PartIndex {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<u32>,
    /// The official client wants the list with text, empty or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[f32; 0]>,
}

impl PartIndex {
    /// The one part of a message: its text.
    pub(super) const TEXT: Self = Self { content_index: Some(0), logprobs: Some([]) };
    /// The one part of an item of reasoning, or of a message where it is not about the text itself.
    pub(super) const FIRST: Self = Self { content_index: Some(0), logprobs: None };
    pub(super) const NONE: Self = Self { content_index: None, logprobs: None };
}

/// An event about an item.
#[derive(Serialize)]
pub(super) struct OfItem<T> {
    pub(super) output_index: usize,
    pub(super) item: T,
}

/// An event about an item of which one more field is told.
#[derive(Serialize)]
pub(super) struct OfPart<'a, T> {
    pub(super) item_id: &'a str,
    pub(super) output_index: usize,
    #[serde(flatten)]
    pub(super) part: PartIndex,
    #[serde(flatten)]
    pub(super) told: T,
}

/// An event about the response.
#[derive(Serialize)]
pub(super) struct OfResponse<T> {
    pub(super) response: T,
}

impl Events {
    /// Writes one event. `fields` must be an object with fields.
    pub(super) fn write(&mut self, kind: &str, fields: &impl Serialize, out: &mut Vec<u8>) {
        let head = format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{}", self.written);
        out.extend_from_slice(head.as_bytes());
        let bracket = out.len();
        // Nothing that is written here can fail to be JSON.
        drop(serde_json::to_writer(&mut *out, fields));
        if let Some(bracket) = out.get_mut(bracket) {
            *bracket = b','; // the object goes on, its fields behind ours
        }
        out.extend_from_slice(b"\n\n");
        self.written += 1;
    }
}
