//! One vLLM server: whether it gets calls, its load, its weights, and how a request is sent to it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header};
use rolltap_rollout::call::Flaw;
use tokio::sync::{Notify, watch};

use super::http1::{AnswerBody, Connections, Request, RequestHead, ServerTls};
use super::ids_support::IdsSupport;
use super::send_error::SendFailure;
use super::{Address, HttpProxy, IdsPlace, ModelCard};
use crate::common::metrics::FlawCounts;
use crate::upstream::policy::Policy;

/// The number of consecutive failed checks after which a server that accepts connections gets no calls.
const EJECTED_AFTER: u32 = 3;
/// The number of consecutive passed checks after which it gets calls again.
const BACK_AFTER: u32 = 2;

/// The request headers that go upstream. All others are dropped: the agent's own credentials, and headers that control
/// vLLM (`X-data-parallel-rank`, `X-Vllm-Priority`). Without `accept-encoding`, answers are not compressed.
pub(super) const FORWARDED: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::ACCEPT,
    header::USER_AGENT,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-request-id"),
];

/// Identifies a replica while this process runs.
pub(crate) type ReplicaId = u64;

/// A server, and its known state.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) id: ReplicaId,
    address: Address,
    connections: Arc<Connections>,
    standing: Mutex<Eligibility>,
    is_draining: AtomicBool,
    /// False once the server answered that it has no call for the end of a session.
    ends_sessions: AtomicBool,
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

impl Replica {
    pub(super) fn new(
        id: ReplicaId,
        address: Address,
        tls: Option<ServerTls>,
        http_proxy: Option<HttpProxy>,
        policy: Arc<Policy>,
        flaws: FlawCounts,
    ) -> Self {
        Self {
            id,
            connections: Connections::to(address.authority().clone(), tls, http_proxy),
            address,
            standing: Mutex::new(Eligibility::In { failed: 0 }),
            is_draining: AtomicBool::new(false),
            ends_sessions: AtomicBool::new(true),
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
        patience: Duration,
        request: &Outgoing<'_>,
    ) -> Result<Response<AnswerBody>, SendFailure> {
        let request = request.to_server(&self.address)?;
        let answered = self.connections.request(&request);
        tokio::time::timeout(patience, answered).await.unwrap_or(Err(SendFailure::Silent(patience)))
    }

    pub(super) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// Notes that the replica accepted an id prompt.
    pub(super) fn ids_accepted(&self) {
        self.ids_support.begin_anew();
    }

    /// Notes that the replica rendered the messages instead of an id prompt. True if that settles that it takes no ids.
    pub(super) fn ids_ignored(&self) -> bool {
        self.ids_support.ignored()
    }

    /// Whether it may have a call for the end of a session.
    pub(super) fn ends_sessions(&self) -> bool {
        self.ends_sessions.load(Ordering::Relaxed)
    }

    /// Notes that it has no call for the end of a session.
    pub(super) fn has_no_end_of_sessions(&self) {
        self.ends_sessions.store(false, Ordering::Relaxed);
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
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
    /// The names of the session headers with the session id. `None` for a request without a session.
    pub(super) session: Option<(&'a [HeaderName], HeaderValue)>,
    pub(super) body: Bytes,
}

impl Outgoing<'_> {
    /// Returns the request for one server.
    pub(super) fn to_server(&self, address: &Address) -> Result<Request, SendFailure> {
        let mut head =
            RequestHead::new(&self.method, address.authority().as_str(), address.prefix(), self.path)?;
        for name in &FORWARDED {
            self.headers.get(name).iter().for_each(|value| head.add(name, value));
        }
        if let Some((names, id)) = &self.session {
            names.iter().for_each(|name| head.add(name, id));
        }
        // The proxy's own key replaces the credentials of the agent.
        address.authorization().iter().for_each(|value| head.add(&header::AUTHORIZATION, value));
        Ok(head.with_body(self.body.clone()))
    }

    /// Whether the request samples nothing: it asks for the models, or for the tokens of a text.
    pub(super) fn is_question(&self) -> bool {
        self.method != Method::POST || matches!(self.path, "/tokenize" | "/detokenize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> Replica {
        Replica::new(
            0,
            "http://h".parse().unwrap(),
            None,
            None,
            Arc::new(Policy::restored(&[])),
            FlawCounts::default(),
        )
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
