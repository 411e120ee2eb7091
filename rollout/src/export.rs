//! The file formats that rollouts leave in, one file each. All are made from [`crate::row::RolloutRow`].
//!
//! An export takes two passes: [`survey`] looks at all trials, [`plan`] decides what becomes of each by the user's
//! [`rules`], [`choice`] checks, chooses and masks the rows of one after the other, and a [`format`](mod@format) writes them.

pub mod choices;
pub mod exporter;
pub mod format;
pub mod formats;
pub mod pipeline;
mod shared;
#[cfg(test)]
mod testing;
