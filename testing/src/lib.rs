//! What the tests of all crates share: time limits that fit the machine ([`limit`]) and sample sizes that fit the tier
//! ([`sample`]). `scripts/test` sets the environment variables that both read; without them a test runs as on a quiet
//! machine, in the default tier.

mod slowness;
mod tier;

pub use slowness::limit;
pub use tier::{is_long, sample};
