//! The pages as HTML. Every text of a job is escaped by the templates: agents write much of it.

pub(crate) mod branch;
mod chart;
mod format;
pub(crate) mod group;
pub(crate) mod job;
pub(crate) mod jobs;
mod layout;
pub(crate) mod link;
pub(crate) mod message;
mod prompts;
mod recompute;
pub(crate) mod records;
pub(crate) mod screens;
mod timeline;
pub(crate) mod tokens;
mod tree;
pub(crate) mod trial;
