//! The format of segments: records, their content, and how values are encoded.

pub(super) mod call_record;
pub(super) mod content;
pub(super) mod event;
pub(super) mod logprobs;
pub(super) mod numbers;
pub(super) mod prelude;
pub(super) mod record;
pub(super) mod segment;
pub(super) mod told;
