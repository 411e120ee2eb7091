//! Chooses the replica of a call, and another replica if the first does not answer.

mod homes;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use http::{HeaderMap, Method, Response, StatusCode};
use rolltap_rollout::ids::TrialId;

use super::body::{Lease, Load, UpstreamBody};
use super::cache_admission::CacheAdmission;
use super::cache_admission::conversations::Conversations;
use super::health::watch;
use super::http1::{Connections, ServerTls};
use super::replica::{Outgoing, Replica, ReplicaId};
use super::send_error::{SendError, SendFailure};
use super::session::{Session, UsedSessions};
use super::session_end::SessionEnds;
use super::tls::Connector;
use super::{Address, IdsPlace, ModelCard};
use crate::common::metrics::{FlawCounts, UpstreamCounts};
use crate::common::tls::TlsError;
use crate::store::{Durable, QueueSlot, Store};
use crate::upstream::PoolSettings;
use crate::upstream::policy::{Policy, SharedNumber, Version};

/// The maximum time that the opening of a trial waits for the model card.
const MODEL_PATIENCE: Duration = Duration::from_secs(2);

/// All upstream servers.
#[derive(Debug)]
pub(crate) struct Pool {
    settings: PoolSettings,
    /// The time within which a server must begin to answer.
    patience: Duration,
    replicas: RwLock<Replicas>,
    /// Empty until a server with TLS is added.
    tls: OnceLock<Connector>,
    /// The replica of each trial, for the sake of the prefix cache. It is chosen at the trial's first call, and changes
    /// only if it takes no calls.
    homes: DashMap<TrialId, Home>,
    session_ends: SessionEnds,
    /// `None` if no runner asks which trials may open.
    pub(super) cache: Option<CacheAdmission>,
    load: Arc<Load>,
    policy: Arc<Policy>,
    store: Store,
    flaws: FlawCounts,
}

/// The replica of a trial, and the sessions of its requests.
#[derive(Debug)]
struct Home {
    replica: Arc<Replica>,
    sessions: UsedSessions,
    /// The tokens that its calls left in the KV cache. Empty if trials are not admitted by the cache.
    conversations: Conversations,
}

#[derive(Debug, Default)]
struct Replicas {
    all: Vec<Arc<Replica>>,
    next_id: ReplicaId,
}

/// Why a server cannot be added.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddError {
    #[error("{0} is an upstream already")]
    AddressTaken(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Pool {
    /// Starts a pool of these servers, and their checks.
    pub(crate) fn start(
        addresses: Vec<Address>,
        settings: PoolSettings,
        patience: Duration,
        policy: Arc<Policy>,
        store: Store,
        flaws: FlawCounts,
    ) -> Result<Arc<Self>, TlsError> {
        let pool = Arc::new(Self {
            cache: settings.admits_trials.then(CacheAdmission::default),
            settings,
            patience,
            replicas: RwLock::default(),
            tls: OnceLock::new(),
            homes: DashMap::new(),
            session_ends: SessionEnds::start(),
            load: Arc::default(),
            policy,
            store,
            flaws,
        });
        for address in addresses {
            match pool.add(address) {
                Ok(_) => {}
                Err(AddError::Tls(error)) => return Err(error),
                Err(error @ AddError::AddressTaken(_)) => tracing::warn!("{error}: it is counted once"),
            }
        }
        Ok(pool)
    }

    /// Adds a server, and starts its checks.
    pub(crate) fn add(self: &Arc<Self>, address: Address) -> Result<Arc<Replica>, AddError> {
        let tls = self.tls_of(&address)?;
        let replica = {
            let mut replicas = self.replicas.write().unwrap_or_else(PoisonError::into_inner);
            let is_there = |replica: &Arc<Replica>| !replica.is_draining() && *replica.address() == address;
            if replicas.all.iter().any(is_there) {
                return Err(AddError::AddressTaken(address.to_string()));
            }
            let replica = Arc::new(Replica::new(
                replicas.next_id,
                address,
                tls,
                self.settings.http_proxy.clone(),
                Arc::clone(&self.policy),
                self.flaws.clone(),
            ));
            replicas.next_id += 1;
            replicas.all.push(Arc::clone(&replica));
            replica
        };
        if let Some(cache) = &self.cache {
            cache.ledger().add(replica.id);
        }
        // The version may have been set before the replica was in the list.
        replica.has_version(self.policy.current().ordinal);
        tokio::spawn(watch(Arc::downgrade(self), Arc::clone(&replica)));
        tokio::spawn(Connections::prune(Arc::downgrade(replica.connections())));
        Ok(replica)
    }

    fn tls_of(&self, address: &Address) -> Result<Option<ServerTls>, AddError> {
        if !address.is_tls() {
            return Ok(None);
        }
        let connector = match self.tls.get() {
            Some(connector) => connector.clone(),
            None => {
                let connector = self.settings.tls.connector()?;
                self.tls.get_or_init(|| connector).clone()
            }
        };
        let tls = ServerTls::of(connector, address.authority());
        Ok(Some(tls.ok_or_else(|| TlsError::InvalidHost(address.to_string()))?))
    }

    /// Sends no further call to a server. The server is removed once its calls in flight have ended.
    pub(crate) fn remove(&self, id: ReplicaId) -> Option<Arc<Replica>> {
        let replica = self.replicas().into_iter().find(|replica| replica.id == id)?;
        replica.drain();
        Some(replica)
    }

    /// Returns every server, including draining servers.
    pub(crate) fn replicas(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    /// Returns the number of servers in each state.
    pub(crate) fn counts(&self) -> UpstreamCounts {
        let mut counts = UpstreamCounts::default();
        for replica in self.replicas() {
            match replica.ejected() {
                // A draining server never returns, so its other state has no meaning.
                _ if replica.is_draining() => counts.draining += 1,
                Some(_) => counts.ejected += 1,
                None => counts.healthy += 1,
            }
        }
        counts
    }

    /// Removes a server that drains and has no call in flight. Returns whether it was removed.
    pub(super) fn let_go(&self, replica: &Replica) -> bool {
        let is_done = replica.is_draining() && replica.in_flight.load(Ordering::SeqCst) == 0;
        if is_done {
            let mut replicas = self.replicas.write().unwrap_or_else(PoisonError::into_inner);
            replicas.all.retain(|other| other.id != replica.id);
            replica.connections().close();
            if let Some(cache) = &self.cache {
                cache.ledger().remove(replica.id);
            }
        }
        is_done
    }

    /// Sends a trial's request. Before an answer begins, another replica may be asked: if no server listens, if the
    /// server answers 503, and once if the connection closes. Only once, because a request that crashes one server
    /// would also crash the others.
    pub(crate) async fn send(
        &self,
        trial: &TrialId,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        session: Option<Session>,
        body: Bytes,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let session = session.filter(|_| !self.settings.session_headers.is_off());
        let header = session.and_then(|session| session.header_value(trial));
        let names = self.settings.session_headers.names();
        let request = Outgoing { method, path, headers, session: header.map(|value| (names, value)), body };
        let mut tried = Vec::new();
        let mut was_closed = false;
        loop {
            let lease = self.lease(trial, request.is_question(), &tried).await?;
            let replica = Arc::clone(&lease.served_by.replica);
            tried.push(replica.id);
            if let (Some(session), Some(mut home)) = (session, self.homes.get_mut(trial))
                && home.replica.id == replica.id
            {
                home.sessions.insert(session);
            }
            match replica.send(self.patience, &request).await {
                Ok(response)
                    if response.status() == StatusCode::SERVICE_UNAVAILABLE && self.has_other(&tried) => {}
                Ok(response) if response.status().is_redirection() => {
                    return Err(SendError::redirects(&replica, &response));
                }
                Ok(response) => {
                    return Ok(response.map(|body| UpstreamBody::new(body, lease)));
                }
                // The request was never sent, so any other replica may get it.
                Err(failure @ SendFailure::Connect(_)) => replica.unreachable(&failure),
                // No answer has begun, so the request is sent once more.
                Err(SendFailure::Closed(_)) if !was_closed => {
                    was_closed = true;
                    if !self.has_other(&tried) {
                        // Most likely the connection was just closing, so a new connection to the same server suffices.
                        tried.pop();
                    }
                }
                Err(failure) => return Err(SendError::of(&replica, &failure)),
            }
        }
    }

    fn has_other(&self, tried: &[ReplicaId]) -> bool {
        self.replicas().iter().any(|replica| replica.takes_calls() && !tried.contains(&replica.id))
    }

    /// Waits until calls may go upstream, and takes a lease on the replica of this call.
    async fn lease(
        &self,
        trial: &TrialId,
        is_question: bool,
        tried: &[ReplicaId],
    ) -> Result<Lease, SendError> {
        loop {
            // A question samples nothing, so it does not wait for the end of a pause.
            if !is_question && self.policy.is_paused() {
                let _held = self.load.hold();
                self.policy.resumed().await;
            }
            let replica = self.choose(trial, is_question, tried).ok_or_else(|| self.none_takes_calls())?;
            let lease = Lease::take(replica, Arc::clone(&self.load));
            // Counted before this check, so that a caller that pauses and then counts calls misses none.
            if is_question || !self.policy.is_paused() {
                return Ok(lease);
            }
        }
    }

    /// Returns the trial's own replica, or the least busy replica. The latter becomes the trial's own if the trial has
    /// none that takes calls.
    fn choose(&self, trial: &TrialId, is_question: bool, tried: &[ReplicaId]) -> Option<Arc<Replica>> {
        let home = self.home(trial).filter(|home| home.takes_calls());
        if let Some(home) = home.as_ref().filter(|home| !tried.contains(&home.id)) {
            return Some(Arc::clone(home));
        }
        // Calls in flight decide first. With equal load, the replica with fewer trials is chosen.
        let load = |replica: &Arc<Replica>| {
            (replica.in_flight.load(Ordering::Relaxed), replica.trials.load(Ordering::Relaxed))
        };
        let chosen = self
            .replicas()
            .into_iter()
            .filter(|replica| replica.takes_calls() && !tried.contains(&replica.id))
            .min_by_key(load)?;
        // A question may come after the end of the trial. Its entry would never be removed then.
        if home.is_none() && !is_question {
            self.settle(trial, Arc::clone(&chosen));
        }
        Some(chosen)
    }

    fn none_takes_calls(&self) -> SendError {
        let replicas = self.replicas();
        let reason = |replica: &Arc<Replica>| {
            let reason =
                if replica.is_draining() { Some("being removed".to_owned()) } else { replica.ejected() };
            format!("{} ({})", replica.address(), reason.as_deref().unwrap_or("did not answer"))
        };
        match replicas.as_slice() {
            [] => SendError::NoneTakesCalls("the proxy has none; name one with --upstream".to_owned()),
            some => SendError::NoneTakesCalls(some.iter().map(reason).collect::<Vec<_>>().join(", ")),
        }
    }

    /// Whether the trial's replica accepts prompts as ids, as far as is known.
    pub(crate) fn takes_ids(&self, trial: &TrialId) -> bool {
        self.home(trial).is_none_or(|home| home.takes_ids())
    }

    /// Whether the trial's replica parses answers, as far as is known.
    pub(crate) fn has_parser(&self, trial: &TrialId) -> bool {
        self.home(trial).is_some_and(|home| home.has_parser())
    }

    /// Returns the place where the trial's replica accepts id prompts, as far as is known.
    pub(crate) fn ids_place(&self, trial: &TrialId) -> IdsPlace {
        self.home(trial).map_or_else(IdsPlace::default, |home| home.ids_place())
    }

    /// Returns the model card of the trial's replica, or of any other replica, because all serve the same model. Waits
    /// up to `MODEL_PATIENCE` for servers that have not been asked yet.
    pub(crate) async fn model_card(&self, trial: &TrialId) -> Arc<ModelCard> {
        if let Some(card) = self.home(trial).and_then(|home| home.card()) {
            return card;
        }
        let replicas = self.replicas();
        if let Some(card) = replicas.iter().find_map(|replica| replica.card()) {
            return card;
        }
        let told = async {
            for replica in &replicas {
                // The wait cannot fail: the replica holds the sender.
                let _ = replica.card.subscribe().wait_for(Option::is_some).await;
                if let Some(card) = replica.card() {
                    return Some(card);
                }
            }
            None
        };
        let told = tokio::time::timeout(MODEL_PATIENCE, told).await.ok().flatten();
        let unknown = || Arc::new(ModelCard::default().with_defaults(self.settings.generation_defaults));
        told.unwrap_or_else(unknown)
    }

    /// Sets the version of all replicas, on the trainer's request.
    pub(crate) fn set_version(
        &self,
        label: &str,
        number: Option<SharedNumber>,
        place: QueueSlot,
    ) -> (Version, Durable) {
        self.policy.set(label, number, place, |version| {
            for replica in self.replicas() {
                replica.has_version(version);
            }
        })
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    pub(super) fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }
}
