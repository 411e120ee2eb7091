//! One vLLM server: whether it can be called, how busy it is, which weights it has, and how a request is sent to it.

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

/// Checks in a row that must fail before a server that takes connections is taken out.
const EJECTED_AFTER: u32 = 3;
/// Checks in a row that must pass before it is back.
const BACK_AFTER: u32 = 2;

/// Request headers that go upstream. All others stay here: the agent's own credentials, and headers by which vLLM lets
/// itself be steered (`X-data-parallel-rank`, `X-Vllm-Priority`). Without `accept-encoding`, answers come readable.
const FORWARDED: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::ACCEPT,
    header::USER_AGENT,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("x-request-id"),
];

/// The connections to all servers.
pub(super) type Connections = Client<HttpConnector, Full<Bytes>>;

/// Which replica, for as long as this process runs.
pub(crate) type ReplicaId = u64;

/// A server and what is known of it.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) id: ReplicaId,
    address: Address,
    standing: Mutex<Eligibility>,
    is_draining: AtomicBool,
    /// Calls under way.
    pub(crate) in_flight: AtomicUsize,
    /// Trials that stay with it.
    pub(crate) trials: AtomicUsize,
    version: AtomicI32,
    policy: Arc<Policy>,
    pub(super) flaws: FlawCounts,
    /// What its answers lack, as far as that has been logged.
    pub(super) lacks: Mutex<BTreeSet<Flaw>>,
    /// It rendered a prompt that it was given as ids.
    ids_support: IdsSupport,
    /// Its chat requests have a field for them.
    has_ids_field: AtomicBool,
    has_parser: AtomicBool,
    /// None until it was asked for the first time.
    pub(super) card: watch::Sender<Option<Arc<ModelCard>>>,
    /// It should be looked at now rather than at the next turn.
    pub(super) look: Notify,
}

/// Whether it gets calls.
#[derive(Clone, Debug)]
enum Eligibility {
    /// It does; so many checks in a row have failed.
    In { failed: u32 },
    /// It does not, for this reason; so many checks in a row have passed since.
    Out { reason: String, passed: u32 },
}

/// Why a request got no head of an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendFailure {
    /// It was never sent.
    #[error("{0}")]
    Connect(String),
    /// The connection went before anything came back.
    #[error("it closed the connection before it answered: {0}")]
    Closed(String),
    /// What came back is no HTTP.
    #[error("{0}")]
    Broken(String),
    /// Nothing came back for so long.
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

    /// Whether the next prompt goes to it as ids. Asked once per prompt.
    pub(super) fn takes_ids(&self) -> bool {
        self.ids_support.is_worth_a_try()
    }

    /// Where it takes them.
    pub(super) fn ids_place(&self) -> IdsPlace {
        if self.has_ids_field.load(Ordering::Relaxed) { IdsPlace::Field } else { IdsPlace::TransferParams }
    }

    /// Whether it parses answers, as far as it told.
    pub(super) fn has_parser(&self) -> bool {
        self.has_parser.load(Ordering::Relaxed)
    }

    /// It told whether it parses answers.
    pub(super) fn parses(&self, has_parser: bool) {
        self.has_parser.store(has_parser, Ordering::Relaxed);
    }

    /// It told where it takes prompts as ids.
    pub(super) fn takes_ids_in(&self, place: IdsPlace) {
        self.has_ids_field.store(place == IdsPlace::Field, Ordering::Relaxed);
    }

    /// It may have been started anew, as another server: whether it takes prompts as ids is found out again.
    pub(super) fn may_take_ids(&self) {
        self.ids_support.begin_anew();
    }

    /// Whether calls may be sent to it.
    pub(super) fn takes_calls(&self) -> bool {
        !self.is_draining() && matches!(*self.lock(), Eligibility::In { .. })
    }

    /// Why it is out, if it is.
    pub(crate) fn ejected(&self) -> Option<String> {
        match &*self.lock() {
            Eligibility::In { .. } => None,
            Eligibility::Out { reason, .. } => Some(reason.clone()),
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Takes no further call; those under way finish.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.look.notify_one();
    }

    /// A check passed. True if that brought it back.
    pub(super) fn check_passed(&self) -> bool {
        let mut standing = self.lock();
        match &mut *standing {
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

    /// A check failed. A server that takes connections may fail some before it is out.
    pub(super) fn check_failed(&self, failure: &SendFailure) {
        let mut standing = self.lock();
        match &mut *standing {
            Eligibility::In { failed } if !failure.is_conclusive() && *failed + 1 < EJECTED_AFTER => {
                *failed += 1
            }
            Eligibility::In { .. } => self.take_out(&mut standing, failure),
            Eligibility::Out { reason, passed } => (*reason, *passed) = (failure.to_string(), 0),
        }
    }

    /// A call could not be sent to it: no need to wait for the next check.
    pub(super) fn unreachable(&self, failure: &SendFailure) {
        let mut standing = self.lock();
        if matches!(*standing, Eligibility::In { .. }) {
            self.take_out(&mut standing, failure);
            self.look.notify_one();
        }
    }

    fn take_out(&self, standing: &mut Eligibility, failure: &SendFailure) {
        tracing::warn!(upstream = %self.address, reason = %failure, "the upstream gets no calls until it is back");
        *standing = Eligibility::Out { reason: failure.to_string(), passed: 0 };
    }

    /// What it told of its models, if it did.
    pub(crate) fn card(&self) -> Option<Arc<ModelCard>> {
        self.card.borrow().as_ref().filter(|card| !card.models.is_empty()).cloned()
    }

    /// The weights that it has.
    pub(crate) fn version(&self) -> i32 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn has_version(&self, version: i32) {
        self.version.store(version, Ordering::Release);
    }

    /// Sends a request; `patience` is how long it may take to begin to answer.
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

/// A request as it goes to whichever replica.
#[derive(Clone, Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Bytes,
}

impl Outgoing<'_> {
    /// Whether nothing is sampled: which models there are, or the tokens of a text.
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
        let is_closed = |cause: &(dyn std::error::Error + 'static)| {
            cause.is::<io::Error>()
                || cause.downcast_ref::<hyper::Error>().is_some_and(|error| {
                    error.is_incomplete_message() || error.is_canceled() || error.is_closed()
                })
        };
        let causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |e| e.source());
        if causes.into_iter().any(is_closed) { Self::Closed(reason) } else { Self::Broken(reason) }
    }

    /// Nobody listens there: asking again at once would say the same.
    fn is_conclusive(&self) -> bool {
        matches!(self, Self::Connect(_))
    }
}

/// What the system said, without the layers around it.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The replica that answers a call, and the weights that it had when the call was sent to it.
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

    /// The replica took a prompt that it was given as ids.
    pub(crate) fn took_ids(&self) {
        self.replica.ids_support.begin_anew();
    }

    /// The replica rendered a prompt that it was given as ids.
    pub(crate) fn ignored_ids(&self) {
        if self.replica.ids_support.ignored() {
            tracing::warn!(
                upstream = %self.replica.address,
                "the upstream does not take prompts as token ids, so it renders every prompt anew; vLLM does since 0.31"
            );
        }
    }

    /// The version that it had when the call was sent.
    pub(crate) fn version_sent(&self) -> i32 {
        self.version_sent
    }

    /// The version that it has now.
    pub(crate) fn version_now(&self) -> i32 {
        self.replica.version()
    }

    /// The names of those versions that have one.
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
