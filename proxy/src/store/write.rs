//! The write path: batches of records become blocks of segments and are made durable.

pub(super) mod encoder;
pub(super) mod gather;
pub(super) mod sync;
pub(super) mod writer;
