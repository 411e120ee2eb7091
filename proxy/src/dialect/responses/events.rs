//! The numbered events of a stream, in the form of the wire.

use serde::Serialize;

/// Writes events and numbers them from 0.
#[derive(Debug, Default)]
pub(super) struct Events {
    written: u64,
}

/// A piece of text that is appended to an item.
#[derive(Serialize)]
pub(super) struct Delta<'a> {
    pub(super) item_id: &'a str,
    pub(super) output_index: usize,
    #[serde(flatten)]
    pub(super) part: PartIndex,
    pub(super) delta: &'a str,
}

/// The part of its item that an event concerns. Items without parts have no such fields.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct PartIndex {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<u32>,
    /// The official client requires the list for text, even if it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[f32; 0]>,
}

impl PartIndex {
    /// The only part of a message, in events about its text.
    pub(super) const TEXT: Self = Self { content_index: Some(0), logprobs: Some([]) };
    /// The only part of a reasoning item, and of a message in events about the part itself.
    pub(super) const FIRST: Self = Self { content_index: Some(0), logprobs: None };
    pub(super) const NONE: Self = Self { content_index: None, logprobs: None };
}

/// An event about an item.
#[derive(Serialize)]
pub(super) struct OfItem<T> {
    pub(super) output_index: usize,
    pub(super) item: T,
}

/// An event about a part of an item, with additional fields.
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
    /// Writes one event. `fields` must serialize to an object with at least one field.
    pub(super) fn write(&mut self, kind: &str, fields: &impl Serialize, out: &mut Vec<u8>) {
        let head = format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{}", self.written);
        out.extend_from_slice(head.as_bytes());
        let bracket = out.len();
        // Serialization of these types cannot fail.
        drop(serde_json::to_writer(&mut *out, fields));
        if let Some(bracket) = out.get_mut(bracket) {
            *bracket = b','; // Replaces the opening brace: the fields follow the type and the number.
        }
        out.extend_from_slice(b"\n\n");
        self.written += 1;
    }
}
