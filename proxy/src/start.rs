//! Starts a proxy, and drains it at the end.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin_plane::admission::Admission;
use crate::admin_plane::audit::{AuditLog, AuditLogError};
use crate::admin_plane::guard::{AdminGuard, Client};
use crate::admin_plane::token_rule::UnsafeToken;
use crate::admin_plane::tokens::file::AdminTokensError;
use crate::admin_plane::tokens::live::LiveTokens;
use crate::admin_plane::{self, AdminPlane, PatientListener};
use crate::agent_plane::AgentPlane;
use crate::agent_plane::public_url::PublicUrl;
use crate::agent_plane::server::{self, AgentListeners, ConnectionLimits};
use crate::common::metrics::Metrics;
use crate::common::tls::{PlaneTls, ServedTls, TlsError};
use crate::dialect::chat::media::Fetching;
use crate::feed::{Feed, KeptTrial, Ledger, Sequencer, Wake};
use crate::lifecycle::evict;
use crate::lifecycle::open::Lifecycle;
use crate::prefix::ExactPrefix;
use crate::render::LoadError;
use crate::settings::{ImplicitTrials, Settings};
use crate::store::{Forgotten, OpenedStore, RecoveredTrial, Store, StoreError, StoreSettings, StoreThread};
use crate::traces::{Exporting, TraceSettings, Tracer};
use crate::trial::Trial;
use crate::trial::observer::Observers;
use crate::trial::registry::Trials;
use crate::upstream::policy::Policy;
use crate::upstream::{Address, Pool, TrialAdmission};

/// How long shutdown waits for clients of the admin plane, which may have stopped reading.
const ADMIN_GRACE: Duration = Duration::from_secs(5);

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
    draining: CancellationToken,
    stopped: CancellationToken,
    agents: JoinHandle<()>,
    admin: JoinHandle<()>,
    store: Store,
    store_thread: StoreThread,
    policy: Arc<Policy>,
    admission: Option<TrialAdmission>,
    /// `None` if traces are off.
    exporting: Option<Exporting>,
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
    let metrics = Arc::new(Metrics::new());
    let guard = guard(&settings, &metrics)?;
    let Recovered { store, thread: store_thread, trials, feed, wakes, policy } =
        recover(&settings.data_dir, settings.store).await?;
    let Listeners { agents: listeners, agent_addrs, admin: admin_listener, admin_addr, first } =
        listen(&settings.listen, settings.admin).await?;
    // Redaction learns the secrets before any error can name them.
    let api_keys = settings.upstreams.iter().filter_map(Address::api_key);
    let of_collector = settings.traces.iter().flat_map(TraceSettings::secrets);
    let secrets = api_keys.chain(settings.admin_token.as_deref()).chain(of_collector);
    secrets.for_each(|secret| settings.redaction.learn(secret));
    let served = |plane, tls: Option<PlaneTls>| {
        tls.map(|files| ServedTls::start(files, plane, metrics.tls_failures(plane))).transpose()
    };
    let (agent_tls, admin_tls) = (served("agent", settings.agent_tls)?, served("admin", settings.admin_tls)?);
    let started = settings.traces.map(|traces| Tracer::start_counting(traces, metrics.dropped_spans()));
    let (tracer, exporting) = started.transpose()?.unzip();
    let idle_timeout = settings.upstream_idle_timeout;
    let flaws = metrics.flaws();
    let upstream = Pool::start(
        settings.upstreams,
        settings.pool,
        idle_timeout,
        Arc::clone(&policy),
        store.clone(),
        flaws,
    )?;
    let prefix =
        ExactPrefix::start(settings.render, Arc::clone(&upstream), store.clone(), Arc::clone(&metrics))?;
    let (draining, stopped) = (CancellationToken::new(), CancellationToken::new());
    let (known, counters) = (Arc::clone(&trials), Arc::clone(&metrics));
    tokio::spawn(evict::watch(known, store.clone(), settings.memory, counters, stopped.clone()));
    Sequencer::start(Arc::clone(&feed), Arc::clone(&trials), store.clone(), wakes, stopped.clone());
    let admission = TrialAdmission::of(&upstream);
    let lifecycle = Lifecycle {
        trials,
        feed,
        upstream: Arc::clone(&upstream),
        store: store.clone(),
        prefix: Arc::clone(&prefix),
        logprobs_mode: settings.logprobs_mode,
        history: settings.history,
        training: settings.training,
        limits: settings.limits,
        redaction: settings.redaction,
        observers: Observers { metrics: metrics.calls(), upstream, tracer },
    };
    let refusals = metrics.refusals();
    let public_url = settings.public_url.unwrap_or_else(|| PublicUrl::of(first, agent_tls.is_some()));
    let admin_plane = AdminPlane {
        lifecycle: lifecycle.clone(),
        public_url: public_url.clone(),
        guard,
        draining: draining.clone(),
        metrics,
        submissions: settings.submissions,
    };
    admin_plane.guard.watch(stopped.clone());
    let patience = settings.reader_patience;
    let admin_listener = PatientListener {
        listener: admin_listener,
        tls: admin_tls,
        patience,
        metrics: Arc::clone(&admin_plane.metrics),
    };
    let admin = serve_admin(admin_listener, admin_plane, settings.pages, stopped.clone());
    let agent_plane = Arc::new(AgentPlane {
        lifecycle,
        public_url,
        opens_for_any_key: settings.implicit_trials != ImplicitTrials::Never,
        model_aliases: settings.model_aliases,
        prefix,
        roles: settings.roles,
        longest_silence: idle_timeout,
        media: if settings.allow_media_urls { Fetching::Allowed } else { Fetching::Refused },
        tool_strict_level: settings.tool_strict_level,
        allowed_origins: settings.allowed_origins,
        body_budget: Arc::default(),
        refusals,
    });
    let limits =
        ConnectionLimits { all: settings.max_connections, of_address: settings.max_connections_per_address };
    let agents = AgentListeners { listeners, tls: agent_tls, limits };
    let agents = tokio::spawn(server::serve(agents, agent_plane, draining.clone()));
    Ok(RunningProxy {
        agent_addrs,
        admin_addr,
        draining,
        stopped,
        agents,
        admin,
        store,
        store_thread,
        policy,
        admission,
        exporting,
    })
}

/// Reads the tokens of the admin plane, and opens its audit log.
fn guard(settings: &Settings, metrics: &Metrics) -> Result<AdminGuard, StartError> {
    let token = settings.admin_token.clone();
    let admission = Admission { server: "the admin plane", flag: "--admin-token-file", token };
    let tokens = settings.admin_tokens.clone().map(LiveTokens::start).transpose()?;
    // A file of tokens suffices off loopback. The single token beside it is checked like any other.
    if tokens.is_none() || settings.admin_token.is_some() {
        admission.check_token(settings.admin)?;
    }
    let open = |path| AuditLog::start(path, metrics.refusals());
    let audit = settings.audit_log.clone().map(open).transpose()?;
    Ok(AdminGuard::new(admission, tokens.map(Arc::new), audit, metrics.refusals()))
}

/// The state that the data directory holds.
struct Recovered {
    store: Store,
    thread: StoreThread,
    trials: Arc<Trials>,
    feed: Arc<Feed>,
    wakes: mpsc::Receiver<Wake>,
    policy: Arc<Policy>,
}

/// Opens the data directory and restores the trials, the feed and the policy versions. Calls that were in flight when the
/// last process ended get a record.
async fn recover(data_dir: &Path, settings: StoreSettings) -> Result<Recovered, StartError> {
    let mut opened: OpenedStore = Store::open(data_dir, settings)?;
    opened.note_interrupted().await?;
    let kept: Vec<_> = opened.trials.iter().map(KeptTrial::of).collect();
    let ledger = Ledger::retold(&kept, &opened.closed_groups, opened.last_sequence, opened.forgotten_through);
    let (feed, wakes) = Feed::new(ledger);
    let trials = Arc::new(restored(opened.trials));
    tokio::spawn(forget(opened.forgotten, Arc::clone(&feed), Arc::clone(&trials)));
    let policy = Arc::new(Policy::restored(&opened.policy));
    Ok(Recovered { store: opened.store, thread: opened.thread, trials, feed, wakes, policy })
}

/// Removes the trials that retention deletes from the feed and from memory.
async fn forget(mut deleted: mpsc::UnboundedReceiver<Forgotten>, feed: Arc<Feed>, known: Arc<Trials>) {
    while let Some(Forgotten { trials, through }) = deleted.recv().await {
        // The feed comes first: its readers must learn of the deletion before the trial is unknown.
        feed.ledger().forgotten(&trials, through);
        trials.iter().filter_map(|trial| known.by_id(trial)).for_each(|trial| known.remove(&trial));
    }
}

/// The sockets of both planes, and their addresses.
struct Listeners {
    agents: Vec<TcpListener>,
    agent_addrs: Vec<SocketAddr>,
    admin: TcpListener,
    admin_addr: SocketAddr,
    /// The first address of the agent plane.
    first: SocketAddr,
}

/// Binds every address, so that a proxy that starts takes calls on all of them.
async fn listen(agents: &[SocketAddr], admin: SocketAddr) -> Result<Listeners, StartError> {
    let bind = |(address, source)| StartError::Bind { address, source };
    let agents = server::bind(agents).await.map_err(bind)?;
    let mut admins = server::bind(&[admin]).await.map_err(bind)?;
    let agent_addrs: Vec<_> = agents.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let (Some(listener), Some(&first)) = (admins.pop(), agent_addrs.first()) else {
        return Err(StartError::NoListener);
    };
    let admin_addr = listener.local_addr().unwrap_or(admin);
    Ok(Listeners { agents, agent_addrs, admin: listener, admin_addr, first })
}

fn serve_admin(
    listener: PatientListener,
    plane: AdminPlane,
    pages: Option<Router>,
    stopped: CancellationToken,
) -> JoinHandle<()> {
    let router = admin_plane::router(plane, pages).into_make_service_with_connect_info::<Client>();
    tokio::spawn(async move {
        let serving = axum::serve(listener, router).with_graceful_shutdown(stopped.cancelled_owned());
        if let Err(error) = serving.await {
            tracing::error!(%error, "the admin plane ended");
        }
    })
}

impl RunningProxy {
    /// The addresses of the agent plane, in the order of [`Settings::listen`].
    pub fn agent_addrs(&self) -> &[SocketAddr] {
        &self.agent_addrs
    }

    /// Returns the ordinal of the current policy version, and follows its changes.
    pub fn policy_version(&self) -> watch::Receiver<i32> {
        self.policy.subscribe()
    }

    /// Returns the admission of trials, if [`crate::PoolSettings::admits_trials`] is set.
    pub fn trial_admission(&self) -> Option<TrialAdmission> {
        self.admission.clone()
    }

    /// The address of the admin plane.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Resolves if the capture store ends by a defect. The proxy then admits no call, and the process should end.
    pub fn broken(&self) -> BoxFuture<'static, StoreError> {
        let store = self.store.clone();
        Box::pin(async move { store.ended().await })
    }

    /// Drains the proxy: admits no further call, waits up to `grace` for calls in flight, and flushes the store.
    /// The future is boxed for the reason given at [`start`].
    pub fn shutdown(self, grace: Duration) -> BoxFuture<'static, Result<(), ShutdownError>> {
        Box::pin(self.drain(grace))
    }

    async fn drain(mut self, grace: Duration) -> Result<(), ShutdownError> {
        self.draining.cancel();
        let all_finished = tokio::time::timeout(grace, &mut self.agents).await.is_ok();
        // Dropping the remaining connections cancels their calls, and each gets a record.
        self.agents.abort();
        self.stopped.cancel();
        if tokio::time::timeout(ADMIN_GRACE, self.admin).await.is_err() {
            tracing::warn!("a client of the admin plane was cut off");
        }
        // Every call has ended by now, and its spans are in the queue.
        if let Some(exporting) = self.exporting {
            exporting.finish().await;
        }
        let written = tokio::task::spawn_blocking(|| self.store_thread.finish()).await;
        written.unwrap_or(Err(StoreError::Closed))?;
        if all_finished { Ok(()) } else { Err(ShutdownError::CutOff(grace)) }
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

/// Restores the trials of the previous process. Open ones accept calls again.
fn restored(found: Vec<RecoveredTrial>) -> Trials {
    let trials = Trials::default();
    for trial in found {
        let restored = trials.add(Trial::restored(trial));
        debug_assert!(restored.is_ok(), "the store recovers each trial once");
    }
    trials
}
