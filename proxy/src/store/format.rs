//! Defines the format of segments: records, their content, and the encoding of values.

pub(super) mod call_record;
pub(super) mod content;
pub(super) mod conversation;
pub(super) mod dictionary;
pub(super) mod event;
pub(super) mod logprobs;
pub(super) mod note;
pub(super) mod record;
pub(super) mod segment;
pub(super) mod varint;
