//! The write path: batches of records become blocks of segments and are made durable.

pub(super) mod encoder;
pub(super) mod fsync;
pub(super) mod group_commit;
pub(super) mod writer;
