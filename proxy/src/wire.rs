//! Bytes on the wire: server-sent events, and JSON that is read and edited in place.

pub(crate) mod json_cursor;
pub(crate) mod passing;
pub(crate) mod sse;
pub(crate) mod surgery;
