//! The wire formats: server-sent events, and JSON that is read and edited in place.

pub(crate) mod chat_outline;
pub(crate) mod chunk_edit;
pub(crate) mod json_edit;
pub(crate) mod json_number;
pub(crate) mod json_scan;
pub(crate) mod sse;
