//! The settings of the pool of upstreams.

use std::time::Duration;

use super::session::SessionHeaders;
use super::tls::UpstreamTls;
use super::{HttpProxy, SamplingDefaults};

/// How the pool checks its upstreams.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// The pause between checks of a server's health and weights.
    pub check_every: Duration,
    /// The sampling of requests without parameters. A value here takes precedence over the model's files.
    pub generation_defaults: SamplingDefaults,
    /// The files of TLS to servers with `https` addresses.
    pub tls: UpstreamTls,
    /// The HTTP proxy between this proxy and all servers. The environment never decides it.
    pub http_proxy: Option<HttpProxy>,
    /// The headers with the id of a request's conversation, for engines and routers.
    pub session_headers: SessionHeaders,
    /// Whether the runner of trials asks which of them may open ([`super::TrialAdmission`]). The metrics of the servers are
    /// read for that.
    pub admits_trials: bool,
}

impl Default for PoolSettings {
    /// Checks every two seconds, and knows nothing about the model.
    fn default() -> Self {
        Self {
            check_every: Duration::from_secs(2),
            generation_defaults: SamplingDefaults::default(),
            tls: UpstreamTls::default(),
            http_proxy: None,
            session_headers: SessionHeaders::default(),
            admits_trials: false,
        }
    }
}
