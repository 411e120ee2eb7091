//! Finding and removing what rolltap created at the engine.

pub(super) mod clean;
pub(super) mod found;
pub(super) mod labels;
pub(super) mod owner;
pub(super) mod sweep;
