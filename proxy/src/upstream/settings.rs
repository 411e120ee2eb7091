//! The settings of the pool of upstreams.

use std::time::Duration;

use super::SamplingDefaults;

/// How upstreams are looked after.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// How often each server is asked whether it is well, and which weights it has.
    pub check_every: Duration,
    /// How the served model samples where a request is silent, as far as that cannot be learnt from its files.
    pub generation_defaults: SamplingDefaults,
}

impl Default for PoolSettings {
    /// A look every two seconds, nothing known of the model.
    fn default() -> Self {
        Self { check_every: Duration::from_secs(2), generation_defaults: SamplingDefaults::default() }
    }
}
