//! The numbers of a page, computed from trials.

pub(crate) mod alignment;
pub(crate) mod diff;
pub(crate) mod exported;
pub(crate) mod histogram;
pub(crate) mod job;
pub(crate) mod masks;
pub(crate) mod pretty;
pub(crate) mod prompts;
pub(crate) mod recompute;
pub(crate) mod runs;
pub(crate) mod screens;
pub(crate) mod timeline;
pub(crate) mod tree;
