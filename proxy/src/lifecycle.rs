//! The life of a trial: opening, and eviction from memory.

pub(crate) mod opening;
pub(crate) mod sleeping;
