//! A proxy from its start to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin_plane::admission::Admission;
use crate::admin_plane::{self, AdminPlane, PatientListener};
use crate::agent_plane::AgentPlane;
use crate::agent_plane::server;
use crate::common::metrics::Metrics;
use crate::dialect::chat::media::Fetching;
use crate::feed::{Feed, KeptTrial, Ledger, Sequencer};
use crate::lifecycle::evict;
use crate::lifecycle::open::Lifecycle;
use crate::prefix::ExactPrefix;
use crate::render::LoadError;
use crate::settings::{ImplicitTrials, Settings};
use crate::store::{Forgotten, OpenedStore, RecoveredTrial, Store, StoreError, StoreThread};
use crate::trial::Trial;
use crate::trial::registry::Trials;
use crate::upstream::policy::Policy;
use crate::upstream::{Address, Pool};

/// Readers that do not read must not hold the end up.
const ADMIN_GRACE: Duration = Duration::from_secs(5);

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Agents need somewhere to call.
    #[error("no address is given for agents to call")]
    NoListener,
    /// Anybody could read and reward trials.
    #[error("the admin plane at {0} is not on loopback, so it needs a token: give --admin-token-file")]
    AdminWithoutToken(SocketAddr),
    /// It could be guessed.
    #[error(
        "the admin token has {0} characters, and needs {least} at least: make one with `openssl rand -hex 32`",
        least = Settings::SHORTEST_ADMIN_TOKEN
    )]
    AdminTokenTooShort(usize),
    /// Somebody else listens there, or the address is not this machine's.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Anybody could open trials.
    #[error(
        "the agent plane at {0} is not on loopback, so not everyone's key may open a trial: give --implicit-trials anywhere \
         if it may"
    )]
    ImplicitTrialsOffLoopback(SocketAddr),
    /// The captures cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tokenizer or the chat template cannot be used.
    #[error(transparent)]
    Render(#[from] LoadError),
}

/// Why a proxy did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ShutdownError {
    /// Some calls did not finish in time; their records say so.
    #[error("calls under way were cut off after {0:?}")]
    CutOff(Duration),
    /// The last captures were not written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A proxy that takes calls.
#[derive(Debug)]
pub struct RunningProxy {
    agent_addrs: Vec<SocketAddr>,
    admin_addr: SocketAddr,
    draining: CancellationToken,
    stopped: CancellationToken,
    agents: JoinHandle<()>,
    admin: JoinHandle<()>,
    store: Store,
    store_thread: StoreThread,
}

/// Starts a proxy; returns once it takes calls.
///
/// The returned future is boxed so that this crate compiles the whole proxy once. The body of an `async fn` is compiled by every
/// crate that polls it, with that crate's settings.
pub fn start(settings: Settings) -> BoxFuture<'static, Result<RunningProxy, StartError>> {
    Box::pin(start_all(settings))
}

async fn start_all(settings: Settings) -> Result<RunningProxy, StartError> {
    check(&settings)?;
    let mut opened = Store::open(&settings.data_dir, settings.store)?;
    opened.note_interrupted().await?;
    let OpenedStore {
        store,
        thread: store_thread,
        trials,
        policy,
        closed_groups,
        last_sequence,
        mut forgotten,
        forgotten_through,
        ..
    } = opened;
    let kept: Vec<_> = trials.iter().map(KeptTrial::of).collect();
    let (feed, nudges) = Feed::new(Ledger::retold(&kept, &closed_groups, last_sequence, forgotten_through));
    let (trials, policy) = (Arc::new(restored(trials)), Policy::restored(&policy));
    let (known, ledger_of) = (Arc::clone(&trials), Arc::clone(&feed));
    tokio::spawn(async move {
        while let Some(Forgotten { trials, through }) = forgotten.recv().await {
            // The feed first: a reader must not find a trial there that is gone without a word.
            ledger_of.ledger().forgotten(&trials, through);
            trials.iter().filter_map(|trial| known.by_id(trial)).for_each(|trial| known.remove(&trial));
        }
    });
    let bind = |(address, source)| StartError::Bind { address, source };
    let listeners = server::bind(&settings.listen).await.map_err(bind)?;
    let mut admin = server::bind(&[settings.admin]).await.map_err(bind)?;
    let agent_addrs = addresses(&listeners);
    let (Some(admin), Some(&first)) = (admin.pop(), agent_addrs.first()) else {
        return Err(StartError::NoListener);
    };
    let admin_addr = admin.local_addr().unwrap_or(settings.admin);

    let secrets =
        settings.upstreams.iter().filter_map(Address::api_key).chain(settings.admin_token.as_deref());
    secrets.for_each(|secret| settings.redaction.learn(secret));
    let metrics = Arc::new(Metrics::new());
    let upstream = Pool::start(
        settings.upstreams,
        settings.pool,
        settings.upstream_idle_timeout,
        Arc::new(policy),
        store.clone(),
        metrics.flaws(),
    );
    let prefix = ExactPrefix::start(settings.render, Arc::clone(&upstream), Arc::clone(&metrics))?;
    let (draining, stopped) = (CancellationToken::new(), CancellationToken::new());
    tokio::spawn(evict::watch(
        Arc::clone(&trials),
        store.clone(),
        settings.memory,
        Arc::clone(&metrics),
        stopped.clone(),
    ));
    Sequencer::start(Arc::clone(&feed), Arc::clone(&trials), store.clone(), nudges, stopped.clone());
    let lifecycle = Lifecycle {
        trials,
        feed,
        upstream,
        store: store.clone(),
        prefix: Arc::clone(&prefix),
        logprobs_mode: settings.logprobs_mode,
        history: settings.history,
        training: settings.training,
        limits: settings.limits,
        redaction: settings.redaction,
    };
    let admin = PatientListener {
        listener: admin,
        patience: settings.reader_patience,
        metrics: Arc::clone(&metrics),
    };
    let router = admin_plane::router(AdminPlane {
        lifecycle: lifecycle.clone(),
        public_url: settings.public_url.unwrap_or_else(|| first.into()),
        admission: Admission {
            server: "the admin plane",
            flag: "--admin-token-file",
            token: settings.admin_token,
        },
        draining: draining.clone(),
        metrics,
    });
    let admin_stopped = stopped.clone().cancelled_owned();
    let admin = tokio::spawn(async move {
        if let Err(error) = axum::serve(admin, router).with_graceful_shutdown(admin_stopped).await {
            tracing::error!(%error, "the admin plane ended");
        }
    });
    let plane = Arc::new(AgentPlane {
        lifecycle,
        opens_for_any_key: settings.implicit_trials != ImplicitTrials::Never,
        model_aliases: settings.model_aliases,
        prefix,
        roles: settings.roles,
        longest_silence: settings.upstream_idle_timeout,
        media: if settings.allow_media_urls { Fetching::Allowed } else { Fetching::Refused },
        tool_strict_level: settings.tool_strict_level,
        allowed_origins: settings.allowed_origins,
        inbox: Arc::default(),
    });
    let agents = tokio::spawn(server::serve(listeners, plane, settings.max_connections, draining.clone()));
    Ok(RunningProxy { agent_addrs, admin_addr, draining, stopped, agents, admin, store, store_thread })
}

impl RunningProxy {
    /// Where the agent plane listens, in the order of [`Settings::listen`].
    pub fn agent_addrs(&self) -> &[SocketAddr] {
        &self.agent_addrs
    }

    /// Where the admin plane listens.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Resolves when the capture store has ended by a defect: no call is taken any more, and the process should end.
    pub fn broken(&self) -> BoxFuture<'static, StoreError> {
        let store = self.store.clone();
        Box::pin(async move { store.ended().await })
    }

    /// Takes no further call, lets those under way finish for `grace` at most, and writes what is left to write.
    /// The future is boxed for the reason given at [`start`].
    pub fn shutdown(self, grace: Duration) -> BoxFuture<'static, Result<(), ShutdownError>> {
        Box::pin(self.drain(grace))
    }

    async fn drain(mut self, grace: Duration) -> Result<(), ShutdownError> {
        self.draining.cancel();
        let all_finished = tokio::time::timeout(grace, &mut self.agents).await.is_ok();
        // What is left goes with its connections, and its records say so.
        self.agents.abort();
        self.stopped.cancel();
        if tokio::time::timeout(ADMIN_GRACE, self.admin).await.is_err() {
            tracing::warn!("a client of the admin plane was cut off");
        }
        let written = tokio::task::spawn_blocking(|| self.store_thread.finish()).await;
        written.unwrap_or(Err(StoreError::Closed))?;
        if all_finished { Ok(()) } else { Err(ShutdownError::CutOff(grace)) }
    }
}

fn check(settings: &Settings) -> Result<(), StartError> {
    if settings.admin_token.is_none() && !settings.admin.ip().is_loopback() {
        return Err(StartError::AdminWithoutToken(settings.admin));
    }
    let token_length = settings.admin_token.as_ref().map(|token| token.chars().count());
    if let Some(short) = token_length.filter(|&length| length < Settings::SHORTEST_ADMIN_TOKEN) {
        return Err(StartError::AdminTokenTooShort(short));
    }
    if settings.implicit_trials == ImplicitTrials::OnLoopback
        && let Some(&address) = settings.listen.iter().find(|address| !address.ip().is_loopback())
    {
        return Err(StartError::ImplicitTrialsOffLoopback(address));
    }
    Ok(())
}

/// Trials of the process before this one, of which open ones go on.
fn restored(found: Vec<RecoveredTrial>) -> Trials {
    let trials = Trials::default();
    for trial in found {
        let restored = trials.add(Trial::restored(trial));
        debug_assert!(restored.is_ok(), "the store tells of each trial once");
    }
    trials
}

fn addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
}
