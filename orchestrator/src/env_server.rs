//! Terminal environments over HTTP, for trainers that own the loop: make one, reset it, step it, close it. Its reward is the
//! verdict of the task's tests at the end of an episode.
//!
//! What an environment shows and how it reads a model's answers is the terminal agent's; where it runs and how it is
//! judged is a trial's. Nothing here calls a model.

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
use rolltap_proxy::{Admission, Settings};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::environment::{EnvironmentError, EnvironmentKind, JobLabel};
use hosts::Hosts;
use http::Gym;
use registry::Registry;

/// How long callers may take to take their last answers when the server ends.
const CALLERS_GRACE: Duration = Duration::from_secs(5);

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct GymSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What callers must bear. Off loopback there must be one.
    pub token: Option<String>,
    /// How environments are made that do not say. Local ones are made only where this says so.
    pub environment: EnvironmentKind,
    /// How many environments there are at once, at most.
    pub max_envs: NonZeroUsize,
    /// How many are started at once, at most.
    pub max_starts: NonZeroUsize,
    /// How long an environment that nobody calls is kept, unless it says otherwise.
    pub lease: Duration,
}

impl GymSettings {
    /// For [`Self::max_envs`].
    pub const DEFAULT_MAX_ENVS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);
    /// For [`Self::max_starts`].
    pub const DEFAULT_MAX_STARTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);
    /// For [`Self::lease`].
    pub const DEFAULT_LEASE: Duration = Duration::from_mins(15);
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum GymStartError {
    /// Anybody could run commands.
    #[error("{0} is not on loopback, so the server needs a token: give --token-file")]
    WithoutToken(SocketAddr),
    /// It could be guessed.
    #[error("the token has {0} characters, and needs {least} at least: make one with `openssl rand -hex 32`", least = Settings::SHORTEST_ADMIN_TOKEN)]
    TokenTooShort(usize),
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Bind {
        /// As asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is nowhere to make environments.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

/// A server that was started.
pub struct RunningGym {
    address: SocketAddr,
    registry: Arc<Registry>,
    hosts: Arc<Hosts>,
    stopped: CancellationToken,
    server: JoinHandle<()>,
}

/// Starts a server. What a dead one left behind at the engine is removed.
///
/// # Errors
/// The settings cannot be used, the address is taken, or there is no engine.
pub fn start(settings: GymSettings) -> BoxFuture<'static, Result<RunningGym, GymStartError>> {
    // Boxed for the reason given at `run_job`.
    Box::pin(start_server(settings))
}

async fn start_server(settings: GymSettings) -> Result<RunningGym, GymStartError> {
    check(&settings)?;
    let label = JobLabel::new(format!("env-{}", std::process::id()));
    let hosts = Arc::new(Hosts::new(label, settings.max_starts.get()));
    hosts.connect(settings.environment).await?;
    let registry = Arc::new(Registry::new(settings.max_envs.get()));
    let bind = |source| GymStartError::Bind { address: settings.listen, source };
    let listener = TcpListener::bind(settings.listen).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let stopped = CancellationToken::new();
    tokio::spawn(Arc::clone(&registry).watch_leases(stopped.clone()));
    let admission =
        Admission { server: "the environment server", flag: "--token-file", token: settings.token };
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
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes no further environment, ends what is under way, and removes all environments.
    /// The future is boxed for the reason given at [`run_job`](crate::job::run_job).
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(self.close())
    }

    async fn close(mut self) {
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

fn check(settings: &GymSettings) -> Result<(), GymStartError> {
    if settings.token.is_none() && !settings.listen.ip().is_loopback() {
        return Err(GymStartError::WithoutToken(settings.listen));
    }
    let length = settings.token.as_ref().map(|token| token.chars().count());
    match length.filter(|length| *length < Settings::SHORTEST_ADMIN_TOKEN) {
        Some(length) => Err(GymStartError::TokenTooShort(length)),
        None => Ok(()),
    }
}
