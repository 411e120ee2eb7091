//! Finds and removes the objects that rolltap created at the engine.

pub(super) mod clean;
pub(super) mod inventory;
pub(super) mod labels;
pub(super) mod process_owner;
pub(super) mod sweep;
