//! The life of a trial: opening, and eviction from memory.

pub(crate) mod evict;
pub(crate) mod open;
