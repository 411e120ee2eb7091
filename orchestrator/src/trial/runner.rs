//! The two ways to run a trial: rolltap's own runner, and Harbor's package.

pub(super) mod by_harbor;
pub(super) mod collect;
pub mod harbor;
pub(super) mod round;
pub(super) mod start;
pub(super) mod steps;
