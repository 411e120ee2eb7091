//! Where a job's trials run: in environments that rolltap creates, or inside Harbor.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::environment::{EnvironmentError, Host};
use crate::trial::runner::harbor::Harbor;
use crate::trial::runner::workers::Workers;

/// Where a job's trials run.
pub(crate) enum TrialHost {
    /// In environments that rolltap creates.
    Host(Host),
    /// Inside Harbor.
    Harbor(Arc<Harbor>),
    /// On other hosts.
    Workers(Arc<Workers>),
}

impl TrialHost {
    /// Returns the address on which the agent plane must listen so that agents reach it.
    pub(crate) fn bind_address(&self) -> IpAddr {
        match self {
            Self::Host(host) => host.bind_address(),
            Self::Harbor(harbor) => harbor.bind_address(),
            // Agents of other hosts need a public URL.
            Self::Workers(_) => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Removes all resources of the job.
    pub(crate) async fn close(self) -> Result<(), EnvironmentError> {
        match self {
            Self::Host(host) => host.close().await,
            Self::Harbor(harbor) => harbor.close().await,
            // Workers remove the environments of their trials themselves.
            Self::Workers(_) => Ok(()),
        }
    }
}
