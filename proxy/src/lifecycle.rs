//! The life of a trial: opening, sealing, rewarding, and eviction from memory.
//!
//! Opening, sealing and rewarding are transactions. Each reserves its place in the store, changes the trial, waits
//! until the change is durable, and informs the feed. Each also ends if its caller is dropped: a client that
//! disconnects must not leave a trial that is sealed or rewarded only in part.

pub(crate) mod evict;
pub(crate) mod open;
pub(crate) mod reward;
pub(crate) mod seal;
