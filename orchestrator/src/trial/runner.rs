//! The ways to run a trial: rolltap's own runner, Harbor's package, and workers on other hosts.

pub mod harbor;
pub(super) mod harbor_trial;
pub(super) mod instruction;
pub(crate) mod start;
pub(crate) mod steps;
pub(super) mod verification;
pub mod workers;
