//! The file formats of exports, one file per export. Every format is made from [`crate::row::RolloutRow`].
//!
//! An export takes two passes. [`pipeline::survey`] surveys all trials, and [`pipeline::plan`] decides how to export
//! each trial by the user's [`pipeline::rules`]. [`pipeline::select`] then checks, selects and masks the rows trial by
//! trial, and a [`format`](mod@format) writes these.

pub mod choices;
pub mod exporter;
pub mod format;
pub mod formats;
pub mod pipeline;
mod shared;
#[cfg(test)]
pub(crate) mod testing;
