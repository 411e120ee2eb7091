//! Terminal environments over HTTP for trainers that own the loop. A client creates, resets, steps and closes an
//! environment. The reward is the verdict of the task's tests at the end of an episode.
//!
//! Observations and the parsing of answers come from the terminal agent. Environments and verification come from
//! trials. The server calls no model.

mod environment_guard;
mod episode;
mod error;
mod hosts;
mod http;
mod judge;
mod lease;
mod registry;
mod reply;
mod request;
mod slot;
mod spec;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rolltap_proxy::{Admission, UnsafeToken};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::environment::{EnvironmentError, EnvironmentKind, JobLabel};
use hosts::Hosts;
use http::Gym;
use registry::Registry;

/// The time for callers to read their last answers when the server ends.
const CALLERS_GRACE: Duration = Duration::from_secs(5);

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct GymSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The bearer token of callers. It is required unless the server listens on loopback.
    pub token: Option<String>,
    /// The default kind of environment. Local environments are allowed only if they are the default.
    pub environment: EnvironmentKind,
    /// The maximum number of environments at once.
    pub max_envs: NonZeroUsize,
    /// The maximum number of environments that start at once.
    pub max_starts: NonZeroUsize,
    /// The default lease.
    pub lease: Duration,
}

impl GymSettings {
    /// The default of [`Self::max_envs`].
    pub const DEFAULT_MAX_ENVS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);
    /// The default of [`Self::max_starts`].
    pub const DEFAULT_MAX_STARTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);
    /// The default of [`Self::lease`].
    pub const DEFAULT_LEASE: Duration = Duration::from_mins(15);
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum GymStartError {
    /// The token is missing, so that anyone on the network could run commands, or it could be guessed.
    #[error(transparent)]
    Token(#[from] UnsafeToken),
    /// The address cannot be used.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The host of the environments cannot be used.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

/// A running server.
pub struct RunningGym {
    address: SocketAddr,
    registry: Arc<Registry>,
    hosts: Arc<Hosts>,
    stopped: CancellationToken,
    server: JoinHandle<()>,
}

/// Starts a server. Removes what a dead server left at the engine.
///
/// # Errors
/// Fails if the settings are invalid, the address is in use, or there is no engine.
pub fn start(settings: GymSettings) -> BoxFuture<'static, Result<RunningGym, GymStartError>> {
    // Boxed for the reason given at `run_job`.
    Box::pin(start_server(settings))
}

async fn start_server(settings: GymSettings) -> Result<RunningGym, GymStartError> {
    let admission =
        Admission { server: "the environment server", flag: "--token-file", token: settings.token };
    admission.check_token(settings.listen)?;
    let label = JobLabel::new(format!("env-{}", std::process::id()));
    let hosts = Arc::new(Hosts::new(label, settings.max_starts.get()));
    hosts.connect(settings.environment).await?;
    let registry = Arc::new(Registry::new(settings.max_envs.get()));
    let bind = |source| GymStartError::Bind { address: settings.listen, source };
    let listener = TcpListener::bind(settings.listen).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let stopped = CancellationToken::new();
    tokio::spawn(Arc::clone(&registry).watch_leases(stopped.clone()));
    let gym = Gym {
        admission,
        hosts: Arc::downgrade(&hosts),
        registry: Arc::clone(&registry),
        kind: settings.environment,
        lease: settings.lease,
    };
    let (router, until) = (http::router(Arc::new(gym)), stopped.clone().cancelled_owned());
    let server = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(until).await {
            tracing::error!(%error, "the environment server ended");
        }
    });
    Ok(RunningGym { address, registry, hosts, stopped, server })
}

impl RunningGym {
    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the creation of environments, ends the calls in flight, and removes all environments. The future is boxed
    /// for the reason given at [`run_job`](crate::job::run_job).
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(self.close())
    }

    async fn close(mut self) {
        // The environments are removed first, which ends the calls in flight, so that their callers still get an
        // answer.
        self.registry.close().await;
        self.stopped.cancel();
        if tokio::time::timeout(CALLERS_GRACE, &mut self.server).await.is_err() {
            tracing::warn!("a caller was cut off");
            self.server.abort();
        }
        match Arc::into_inner(self.hosts) {
            Some(hosts) => hosts.close().await,
            None => tracing::warn!("a call is still under way; `rolltap clean` removes what is left"),
        }
    }
}
