//! Everything of a proxy behind its sockets: the store, the trials, the pool of upstreams and both planes.

use std::sync::Arc;

use axum::Router;
use rolltap_cluster::versions::VersionNumbers;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::StartError;
use crate::admin_plane::admission::Admission;
use crate::admin_plane::audit::AuditLog;
use crate::admin_plane::guard::AdminGuard;
use crate::admin_plane::tokens::live::LiveTokens;
use crate::admin_plane::{self, AdminPlane};
use crate::agent_plane::AgentPlane;
use crate::agent_plane::public_url::PublicUrl;
use crate::common::metrics::Metrics;
use crate::common::shard::Shard;
use crate::dialect::chat::media::Fetching;
use crate::feed::{Feed, KeptTrial, Ledger, Sequencer, Wake};
use crate::lifecycle::evict;
use crate::lifecycle::open::Lifecycle;
use crate::prefix::ExactPrefix;
use crate::settings::{ImplicitTrials, Settings};
use crate::store::{Forgotten, OpenedStore, RecoveredTrial, Store, StoreError, StoreThread};
use crate::traces::{Exporting, TraceSettings, Tracer};
use crate::trial::Trial;
use crate::trial::observer::Observers;
use crate::trial::registry::Trials;
use crate::upstream::policy::Policy;
use crate::upstream::{Address, Pool, TrialAdmission};

/// What exists before the store is opened.
#[derive(Debug)]
pub(super) struct Foundation {
    pub(super) metrics: Arc<Metrics>,
    guard: AdminGuard,
    /// Cancelled when the proxy begins to shut down and accepts no further call.
    pub(super) draining: CancellationToken,
    /// Cancelled when every call has ended.
    pub(super) stopped: CancellationToken,
}

/// A proxy without its sockets.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) agent_plane: Arc<AgentPlane>,
    pub(super) admin_router: Router,
    pub(super) store: Store,
    pub(super) policy: Arc<Policy>,
    pub(super) admission: Option<TrialAdmission>,
    store_thread: StoreThread,
    /// `None` if traces are off.
    exporting: Option<Exporting>,
}

impl Foundation {
    /// Reads the tokens of the admin plane, and opens its audit log.
    pub(super) fn lay(settings: &Settings) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::new());
        let guard = guard(settings, &metrics)?;
        let (draining, stopped) = (CancellationToken::new(), CancellationToken::new());
        Ok(Self { metrics, guard, draining, stopped })
    }
}

impl Core {
    /// Starts everything behind the sockets. `default_url` is the URL that agents get if the settings have none.
    pub(super) fn start(
        settings: Settings,
        shard: Shard,
        recovered: Recovered,
        foundation: Foundation,
        default_url: PublicUrl,
    ) -> Result<Self, StartError> {
        let Recovered { store, thread: store_thread, trials, feed, wakes, policy } = recovered;
        let Foundation { metrics, guard, draining, stopped } = foundation;
        // Redaction learns the secrets before any error can name them.
        let api_keys = settings.upstreams.iter().filter_map(Address::api_key);
        let of_collector = settings.traces.iter().flat_map(TraceSettings::secrets);
        let secrets = api_keys.chain(settings.admin_token.as_deref()).chain(of_collector);
        secrets.for_each(|secret| settings.redaction.learn(secret));
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
        let public_url = settings.public_url.unwrap_or(default_url);
        let admin_plane = AdminPlane {
            lifecycle: lifecycle.clone(),
            public_url: public_url.clone(),
            shard,
            guard,
            draining,
            metrics,
            submissions: settings.submissions,
        };
        admin_plane.guard.watch(stopped);
        let admin_router = admin_plane::router(admin_plane, settings.pages);
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
        Ok(Self { agent_plane, admin_router, store, policy, admission, store_thread, exporting })
    }

    /// Flushes the spans and the store. Every call has ended.
    pub(super) async fn finish(self) -> Result<(), StoreError> {
        let Self { exporting, store_thread, .. } = self;
        // Every call has ended, and its spans are in the queue.
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        let written = tokio::task::spawn_blocking(|| store_thread.finish()).await;
        written.unwrap_or(Err(StoreError::Closed))
    }
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
pub(super) struct Recovered {
    store: Store,
    thread: StoreThread,
    trials: Arc<Trials>,
    feed: Arc<Feed>,
    wakes: mpsc::Receiver<Wake>,
    policy: Arc<Policy>,
}

/// The process whose captures this one continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Predecessor {
    /// An earlier process of this proxy. Its pause ended with it.
    Process,
    /// The previous holder of a shard. Its pause continues, because the trainer may be loading weights at this moment.
    Holder,
}

/// Restores the trials, the feed and the policy from the captures. Calls that were in flight when the predecessor ended get a
/// record.
///
/// `numbers` numbers the versions of a cluster of several shards.
pub(super) async fn recover(
    mut opened: OpenedStore,
    predecessor: Predecessor,
    numbers: Option<VersionNumbers>,
) -> Result<Recovered, StoreError> {
    if predecessor == Predecessor::Process {
        opened.end_pause().await?;
    }
    opened.note_interrupted().await?;
    let kept: Vec<_> = opened.trials.iter().map(KeptTrial::of).collect();
    let ledger = Ledger::retold(&kept, &opened.closed_groups, opened.last_sequence, opened.forgotten_through);
    let (feed, wakes) = Feed::new(ledger);
    let trials = Arc::new(restored(opened.trials));
    tokio::spawn(forget(opened.forgotten, Arc::clone(&feed), Arc::clone(&trials)));
    let policy = Policy::restored(&opened.policy);
    let policy = match predecessor {
        Predecessor::Process => policy,
        Predecessor::Holder => policy.of_shard(numbers, opened.pause),
    };
    let policy = Arc::new(policy);
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

/// Restores the trials of the previous process. Open ones accept calls again.
fn restored(found: Vec<RecoveredTrial>) -> Trials {
    let trials = Trials::default();
    for trial in found {
        let restored = trials.add(Trial::restored(trial));
        debug_assert!(restored.is_ok(), "the store recovers each trial once");
    }
    trials
}
