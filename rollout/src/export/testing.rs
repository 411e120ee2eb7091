//! Trials, strategies and readers for the tests of formats.

pub(super) mod any_trial;
pub(super) mod arbitrary;
pub(super) mod every_format;
pub(crate) mod fixture;
mod generated;
pub(super) mod read_back;
