//! The write path: batches of events become records of a segment, and are made durable.

pub(super) mod encoder;
pub(super) mod fsync;
pub(super) mod group_commit;
pub(super) mod log;
pub(super) mod priority;
pub(super) mod writer;
