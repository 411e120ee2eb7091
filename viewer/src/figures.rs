//! The numbers of a page, computed from trials.

pub(crate) mod alignment;
pub(crate) mod histogram;
pub(crate) mod job;
pub(crate) mod runs;
