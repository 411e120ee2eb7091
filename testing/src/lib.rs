//! Shared test support of all crates: time limits that fit the machine ([`limit`]), waits for conditions ([`until`],
//! [`eventually`]) and sample sizes that fit the tier ([`sample`]). `scripts/test` sets the environment variables that
//! limits and sample sizes read. Without them a test runs as on a quiet machine, in the default tier.

mod generated;
mod slowness;
mod tier;
mod wait;

pub use generated::is_current;
pub use slowness::limit;
pub use tier::{is_long, sample};
pub use wait::{eventually, until};
