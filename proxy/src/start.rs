//! Starts a proxy, and drains it at the end.

mod core;
mod node;
mod sockets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use self::core::{Core, Foundation, Predecessor, recover};
pub use self::node::{NodeError, NodeSettings, NodeStatus, RunningNode, start_node};
use self::sockets::{Serving, Sockets};
use crate::admin_plane::audit::AuditLogError;
use crate::admin_plane::token_rule::UnsafeToken;
use crate::admin_plane::tokens::file::AdminTokensError;
use crate::agent_plane::responder::Responder;
use crate::common::shard::Shard;
use crate::common::tls::TlsError;
use crate::prefix::RefutedKind;
use crate::render::LoadError;
use crate::settings::{ImplicitTrials, Settings};
use crate::store::{Store, StoreError};
use crate::upstream::TrialAdmission;

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The agent plane has no address.
    #[error("no address is given for agents to call")]
    NoListener,
    /// The token of the admin plane is missing or could be guessed.
    #[error(transparent)]
    Token(#[from] UnsafeToken),
    /// The file of admin tokens cannot be used.
    #[error(transparent)]
    AdminTokens(#[from] AdminTokensError),
    /// The audit log cannot be opened.
    #[error(transparent)]
    AuditLog(#[from] AuditLogError),
    /// The address is in use, or not one of this machine.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// Off loopback, anyone who reaches the agent plane could open trials.
    #[error(
        "the agent plane at {0} is not on loopback, so not everyone's key may open a trial: give --implicit-trials anywhere \
         if it may"
    )]
    ImplicitTrialsOffLoopback(SocketAddr),
    /// The data directory cannot be opened or recovered.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The tokenizer or the chat template cannot be used.
    #[error(transparent)]
    Render(#[from] LoadError),
}

/// Why a proxy did not shut down cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ShutdownError {
    /// Calls in flight did not finish within the grace period. Their records have the status `cancelled`.
    #[error("calls under way were cut off after {0:?}")]
    CutOff(Duration),
    /// The last records were not written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A proxy that accepts calls.
#[derive(Debug)]
pub struct RunningProxy {
    agent_addrs: Vec<SocketAddr>,
    admin_addr: SocketAddr,
    serving: Serving,
    core: Core,
}

/// Starts a proxy and returns once it accepts calls.
///
/// The returned future is boxed so that this crate compiles the whole proxy once. The body of an `async fn` is compiled by every
/// crate that polls it, with that crate's settings.
pub fn start(settings: Settings) -> BoxFuture<'static, Result<RunningProxy, StartError>> {
    Box::pin(start_all(settings))
}

async fn start_all(settings: Settings) -> Result<RunningProxy, StartError> {
    check(&settings)?;
    let foundation = Foundation::lay(&settings)?;
    let (draining, stopped) = (foundation.draining.clone(), foundation.stopped.clone());
    let metrics = Arc::clone(&foundation.metrics);
    let recovered =
        recover(Store::open(&settings.data_dir, settings.store)?, Predecessor::Process, None).await?;
    let sockets = Sockets::bind(&settings, &metrics).await?;
    let core = Core::start(settings, Shard::ONLY, recovered, foundation, sockets.default_url())?;
    let (agent_addrs, admin_addr) = (sockets.agent_addrs.clone(), sockets.admin_addr);
    let responder = Responder::Own(Arc::clone(&core.agent_plane));
    let router = core.admin_router.clone();
    let serving = sockets.serve(responder, router, &metrics, draining, stopped);
    Ok(RunningProxy { agent_addrs, admin_addr, serving, core })
}

impl RunningProxy {
    /// The addresses of the agent plane, in the order of [`Settings::listen`].
    pub fn agent_addrs(&self) -> &[SocketAddr] {
        &self.agent_addrs
    }

    /// Returns the ordinal of the current policy version, and follows its changes.
    pub fn policy_version(&self) -> watch::Receiver<i32> {
        self.core.policy.subscribe()
    }

    /// Returns the admission of trials, if [`crate::PoolSettings::admits_trials`] is set.
    pub fn trial_admission(&self) -> Option<TrialAdmission> {
        self.core.admission.clone()
    }

    /// Returns the kinds of requests that the server rendered otherwise than the exact prefix, after the proofs and the
    /// audit that have begun. Kinds that were not compared are not among them.
    pub fn refuted_kinds(&self) -> BoxFuture<'static, Vec<RefutedKind>> {
        let prefix = Arc::clone(&self.core.agent_plane.prefix);
        Box::pin(async move { prefix.refuted_kinds().await })
    }

    /// The address of the admin plane.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Resolves if the capture store ends by a defect. The proxy then admits no call, and the process should end.
    pub fn broken(&self) -> BoxFuture<'static, StoreError> {
        let store = self.core.store.clone();
        Box::pin(async move { store.ended().await })
    }

    /// Drains the proxy: admits no further call, waits up to `grace` for calls in flight, and flushes the store.
    /// The future is boxed for the reason given at [`start`].
    pub fn shutdown(self, grace: Duration) -> BoxFuture<'static, Result<(), ShutdownError>> {
        Box::pin(self.drain(grace))
    }

    async fn drain(self, grace: Duration) -> Result<(), ShutdownError> {
        let calls = self.serving.drain(grace).await;
        self.core.finish().await?;
        calls
    }
}

fn check(settings: &Settings) -> Result<(), StartError> {
    if settings.implicit_trials == ImplicitTrials::OnLoopback
        && let Some(&address) = settings.listen.iter().find(|address| !address.ip().is_loopback())
    {
        return Err(StartError::ImplicitTrialsOffLoopback(address));
    }
    Ok(())
}
