//! The Docker environment on a real engine. Every test has its own job, removes it even if the test fails, and then
//! checks that nothing is left.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy.toml lets tests do so, but does not see helpers outside of test functions"
)]

mod commands;
mod containers;
mod files;
mod harness;
mod images;
mod leftovers;
mod networks;
mod services;
mod verdicts;
