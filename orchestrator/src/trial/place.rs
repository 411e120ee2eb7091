//! Where a job's trials run: in environments that rolltap creates, or inside Harbor.

use std::net::IpAddr;
use std::sync::Arc;

use crate::environment::{EnvironmentError, Host};
use crate::trial::runner::harbor::Harbor;

/// Where a job's trials run.
pub(crate) enum TrialHost {
    /// In environments that rolltap creates.
    Host(Host),
    /// Inside Harbor.
    Harbor(Arc<Harbor>),
}

impl TrialHost {
    /// Returns the address on which the agent plane must listen so that agents reach it.
    pub(crate) fn bind_address(&self) -> IpAddr {
        match self {
            Self::Host(host) => host.bind_address(),
            Self::Harbor(harbor) => harbor.bind_address(),
        }
    }

    /// Removes all resources of the job.
    pub(crate) async fn close(self) -> Result<(), EnvironmentError> {
        match self {
            Self::Host(host) => host.close().await,
            Self::Harbor(harbor) => harbor.close().await,
        }
    }
}
