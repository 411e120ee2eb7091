//! One vLLM server: whether it gets calls, its load, its weights, and how a request is sent to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use rolltap_rollout::call::Flaw;
use tokio::sync::{Notify, watch};

use super::ids_support::IdsSupport;
use super::{Address, IdsPlace, ModelCard};
use crate::common::metrics::FlawCounts;
use crate::upstream::policy::Policy;

/// The number of consecutive failed checks after which a server that accepts connections gets no calls.
const EJECTED_AFTER: u32 = 3;
/// The number of consecutive passed checks after which it gets calls again.
const BACK_AFTER: u32 = 2;

/// The request headers that go upstream. All others are dropped: the agent's own credentials, and headers that control
/// vLLM (`X-data-parallel-rank`, `X-Vllm-Priority`). Without `accept-encoding`, answers are not compressed.
const FORWARDED: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::ACCEPT,
    header::USER_AGENT,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("x-request-id"),
];

/// The connections to all servers.
pub(super) type Connections = Client<HttpConnector, Full<Bytes>>;

/// Identifies a replica while this process runs.
pub(crate) type ReplicaId = u64;

/// A server, and its known state.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) id: ReplicaId,
    address: Address,
    standing: Mutex<Eligibility>,
    is_draining: AtomicBool,
    /// The number of calls in flight.
    pub(crate) in_flight: AtomicUsize,
    /// The number of trials whose own replica this is.
    pub(crate) trials: AtomicUsize,
    version: AtomicI32,
    policy: Arc<Policy>,
    pub(super) flaws: FlawCounts,
    /// The flaws of its answers that have been logged.
    pub(super) lacks: Mutex<BTreeSet<Flaw>>,
    /// Whether it accepts prompts as ids, by its answers so far.
    ids_support: IdsSupport,
    /// Whether its chat requests have a field for prompt ids.
    has_ids_field: AtomicBool,
    has_parser: AtomicBool,
    /// `None` until it was asked for the first time.
    pub(super) card: watch::Sender<Option<Arc<ModelCard>>>,
    /// Wakes the watcher for a check before the next regular one.
    pub(super) look: Notify,
}

/// Whether the server gets calls.
#[derive(Clone, Debug)]
enum Eligibility {
    /// It gets calls. `failed` checks in a row have failed.
    In { failed: u32 },
    /// It gets no calls, for this reason. `passed` checks in a row have passed since.
    Out { reason: String, passed: u32 },
}

/// The reason why no response began.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendFailure {
    /// The request was never sent.
    #[error("{0}")]
    Connect(String),
    /// The connection closed before a response began.
    #[error("it closed the connection before it answered: {0}")]
    Closed(String),
    /// Any other failure, such as a response that is not HTTP.
    #[error("{0}")]
    Broken(String),
    /// No response began within this time.
    #[error("it did not begin to answer within {0:?}")]
    Silent(Duration),
}

impl Replica {
    pub(super) fn new(id: ReplicaId, address: Address, policy: Arc<Policy>, flaws: FlawCounts) -> Self {
        Self {
            id,
            address,
            standing: Mutex::new(Eligibility::In { failed: 0 }),
            is_draining: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            trials: AtomicUsize::new(0),
            version: AtomicI32::new(policy.current().ordinal),
            policy,
            flaws,
            lacks: Mutex::default(),
            ids_support: IdsSupport::default(),
            has_ids_field: AtomicBool::new(false),
            has_parser: AtomicBool::new(false),
            card: watch::Sender::new(None),
            look: Notify::new(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the next prompt is sent to it as ids. Called once per prompt.
    pub(super) fn takes_ids(&self) -> bool {
        self.ids_support.is_worth_a_try()
    }

    /// Returns the place where it accepts id prompts.
    pub(super) fn ids_place(&self) -> IdsPlace {
        if self.has_ids_field.load(Ordering::Relaxed) { IdsPlace::Field } else { IdsPlace::TransferParams }
    }

    /// Whether it parses answers. False until it has reported a parser.
    pub(super) fn has_parser(&self) -> bool {
        self.has_parser.load(Ordering::Relaxed)
    }

    /// Notes whether it parses answers.
    pub(super) fn parses(&self, has_parser: bool) {
        self.has_parser.store(has_parser, Ordering::Relaxed);
    }

    /// Notes the place where it accepts id prompts.
    pub(super) fn takes_ids_in(&self, place: IdsPlace) {
        self.has_ids_field.store(place == IdsPlace::Field, Ordering::Relaxed);
    }

    /// Forgets whether it accepts id prompts, because it may have been restarted as another server.
    pub(super) fn may_take_ids(&self) {
        self.ids_support.begin_anew();
    }

    /// Whether calls may be sent to it.
    pub(super) fn takes_calls(&self) -> bool {
        !self.is_draining() && matches!(*self.lock(), Eligibility::In { .. })
    }

    /// Returns the reason why it gets no calls, or `None` if it gets calls.
    pub(crate) fn ejected(&self) -> Option<String> {
        match &*self.lock() {
            Eligibility::In { .. } => None,
            Eligibility::Out { reason, .. } => Some(reason.clone()),
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Accepts no further call. Calls in flight continue.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.look.notify_one();
    }

    /// Notes a passed check. Returns true if this makes the server eligible again.
    pub(super) fn check_passed(&self) -> bool {
        let mut standing = self.lock();
        match &mut *standing {
            // One passed check is not enough, because a starting server may fail again.
            Eligibility::Out { passed, .. } if *passed + 1 < BACK_AFTER => {
                *passed += 1;
                false
            }
            Eligibility::Out { .. } => {
                *standing = Eligibility::In { failed: 0 };
                tracing::info!(upstream = %self.address, "the upstream is back");
                true
            }
            Eligibility::In { failed } => {
                *failed = 0;
                false
            }
        }
    }

    /// Notes a failed check. A server that accepts connections may fail some checks before it gets no calls.
    pub(super) fn check_failed(&self, failure: &SendFailure) {
        let mut standing = self.lock();
        match &mut *standing {
            // A failed connection is conclusive. Any other failure may be due to load.
            Eligibility::In { failed } if !failure.is_conclusive() && *failed + 1 < EJECTED_AFTER => {
                *failed += 1
            }
            Eligibility::In { .. } => self.take_out(&mut standing, failure),
            Eligibility::Out { reason, passed } => (*reason, *passed) = (failure.to_string(), 0),
        }
    }

    /// Notes that a call could not be sent. The server gets no calls from now on, without another check.
    pub(super) fn unreachable(&self, failure: &SendFailure) {
        let mut standing = self.lock();
        if matches!(*standing, Eligibility::In { .. }) {
            self.take_out(&mut standing, failure);
            // The watcher checks now, so that a server that comes back soon is found early.
            self.look.notify_one();
        }
    }

    fn take_out(&self, standing: &mut Eligibility, failure: &SendFailure) {
        tracing::warn!(upstream = %self.address, reason = %failure, "the upstream gets no calls until it is back");
        *standing = Eligibility::Out { reason: failure.to_string(), passed: 0 };
    }

    /// Returns its model card, if it has listed its models.
    pub(crate) fn card(&self) -> Option<Arc<ModelCard>> {
        // A card without models only ends the waits of other tasks.
        self.card.borrow().as_ref().filter(|card| !card.models.is_empty()).cloned()
    }

    /// Returns the policy version of its weights.
    pub(crate) fn version(&self) -> i32 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn has_version(&self, version: i32) {
        self.version.store(version, Ordering::Release);
    }

    /// Sends a request. `patience` is the time within which the response must begin.
    pub(super) async fn send(
        &self,
        connections: &Connections,
        patience: Duration,
        request: &Outgoing<'_>,
    ) -> Result<Response<Incoming>, SendFailure> {
        let mut outgoing =
            Request::builder().method(request.method.clone()).uri(self.address.join(request.path));
        if let Some(headers) = outgoing.headers_mut() {
            for name in &FORWARDED {
                headers.extend(request.headers.get(name).map(|value| (name.clone(), value.clone())));
            }
            // The proxy's own key replaces the credentials of the agent.
            headers.extend(self.address.authorization().map(|value| (header::AUTHORIZATION, value)));
        }
        let outgoing = outgoing
            .body(Full::new(request.body.clone()))
            .map_err(|error| SendFailure::Broken(error.to_string()))?;
        match tokio::time::timeout(patience, connections.request(outgoing)).await {
            Ok(answered) => answered.map_err(|error| SendFailure::of(&error)),
            Err(_) => Err(SendFailure::Silent(patience)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Eligibility> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that can go to any replica.
#[derive(Clone, Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Bytes,
}

impl Outgoing<'_> {
    /// Whether the request samples nothing: it asks for the models, or for the tokens of a text.
    pub(super) fn is_question(&self) -> bool {
        self.method != Method::POST || matches!(self.path, "/tokenize" | "/detokenize")
    }
}

impl SendFailure {
    fn of(error: &hyper_util::client::legacy::Error) -> Self {
        let reason = root_cause(error);
        if error.is_connect() {
            return Self::Connect(reason);
        }
        // A server may close an idle connection while a request is being sent on it.
        let is_closed = |cause: &(dyn std::error::Error + 'static)| {
            cause.is::<io::Error>()
                || cause.downcast_ref::<hyper::Error>().is_some_and(|error| {
                    error.is_incomplete_message() || error.is_canceled() || error.is_closed()
                })
        };
        let causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |e| e.source());
        if causes.into_iter().any(is_closed) { Self::Closed(reason) } else { Self::Broken(reason) }
    }

    /// Whether no server listens there. An immediate retry would fail too.
    fn is_conclusive(&self) -> bool {
        matches!(self, Self::Connect(_))
    }
}

/// Returns the innermost error, without the layers around it.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The replica that answers a call, and its version when the call was sent.
#[derive(Clone, Debug)]
pub(crate) struct ServedBy {
    pub(super) replica: Arc<Replica>,
    version_sent: i32,
}

impl ServedBy {
    pub(super) fn new(replica: Arc<Replica>) -> Self {
        let version_sent = replica.version();
        Self { replica, version_sent }
    }

    /// The replica's URL.
    pub(crate) fn upstream(&self) -> String {
        self.replica.address.to_string()
    }

    /// Notes that the replica accepted an id prompt.
    pub(crate) fn took_ids(&self) {
        self.replica.ids_support.begin_anew();
    }

    /// Notes that the replica rendered the messages instead of an id prompt.
    pub(crate) fn ignored_ids(&self) {
        if self.replica.ids_support.ignored() {
            tracing::warn!(
                upstream = %self.replica.address,
                "the upstream does not take prompts as token ids, so it renders every prompt anew; vLLM does since 0.31"
            );
        }
    }

    /// Returns the replica's version at the time when the call was sent.
    pub(crate) fn version_sent(&self) -> i32 {
        self.version_sent
    }

    /// Returns the replica's version now.
    pub(crate) fn version_now(&self) -> i32 {
        self.replica.version()
    }

    /// Returns the labels of those versions that have a label.
    pub(crate) fn labels_of(&self, versions: impl IntoIterator<Item = i32>) -> BTreeMap<i32, String> {
        self.replica.policy.labels_of(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> Replica {
        Replica::new(0, "http://h".parse().unwrap(), Arc::new(Policy::restored(&[])), FlawCounts::default())
    }

    #[test]
    fn a_server_that_answers_errors_is_out_after_some_and_back_after_some() {
        let replica = replica();
        let sick = SendFailure::Broken("503".into());
        replica.check_failed(&sick);
        replica.check_failed(&sick);
        assert!(!replica.check_passed() && replica.takes_calls());
        (0..EJECTED_AFTER).for_each(|_| replica.check_failed(&sick));
        assert_eq!(replica.ejected().as_deref(), Some("503"));
        assert!(!replica.check_passed());
        replica.check_failed(&sick);
        assert!(!replica.check_passed() && !replica.takes_calls());
        assert!(replica.check_passed() && replica.takes_calls());
    }

    #[test]
    fn a_server_that_nobody_listens_at_is_out_at_once() {
        let replica = replica();
        replica.unreachable(&SendFailure::Connect("refused".into()));
        assert!(!replica.takes_calls());
        assert!(!replica.check_passed() && replica.check_passed());
        replica.check_failed(&SendFailure::Connect("refused".into()));
        assert!(!replica.takes_calls());
    }
}
