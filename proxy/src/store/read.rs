//! The read path: recovery at start-up, the index of trials, and the reader of calls.

pub(super) mod archive;
pub(super) mod follower;
pub(super) mod index;
pub(super) mod reader;
pub(super) mod recovery;
