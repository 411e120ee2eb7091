//! The two ways to run a trial: rolltap's own runner, and Harbor's package.

pub mod harbor;
pub(super) mod harbor_trial;
pub(super) mod instruction;
pub(crate) mod start;
pub(crate) mod steps;
pub(super) mod verification;
