//! The pages of `rolltap view` in a real browser.

mod accessibility;
mod admin_plane;
mod browser;
mod bundle;
mod captures;
mod docs;
mod following;
mod hostile;
mod keyboard;
mod loading;
pub(crate) mod program;
mod prompts;
mod real_job;
mod recompute;
mod records;
mod rows;
mod screens;
mod script;
mod trial;
mod widths;
