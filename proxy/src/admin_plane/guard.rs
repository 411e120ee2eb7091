//! The guard of each route of the admin plane: who calls, whether the token has the role of the route or the key is that
//! of the trial, and the record in the audit log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::RequestExt;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use http::header;
use jiff::Timestamp;
use rolltap_rollout::ids::TrialId;
use tokio_util::sync::CancellationToken;

use super::AdminPlane;
use super::admission::{Admission, NotAdmitted};
use super::audit::{AuditLog, AuditRecord, Caller, Place, Subject};
use super::basic_auth::{CHALLENGE, password};
use super::error::AdminError;
use super::role::AdminRole;
use super::slow_reader::PatientListener;
use super::tokens::live::LiveTokens;
use super::tokens::{AdminToken, TokenHash, TokenName};
use crate::common::log_limit::LogLimit;
use crate::common::refusal_counts::{DenialCause, RefusalCounts};
use crate::common::trial_key::TrialKey;

/// The denied requests that are logged at once, and the time for each further one. A day of them takes less than 20 MB.
const DENIALS_AT_ONCE: u32 = 20;
const DENIAL_INTERVAL: Duration = Duration::from_secs(1);

/// Decides about the requests to the admin plane.
#[derive(Debug)]
pub(crate) struct AdminGuard {
    /// The rule for a proxy without any token.
    without_token: Admission,
    /// The token of `--admin-token-file`.
    token: Option<AdminToken>,
    /// The tokens of `--admin-tokens`.
    tokens: Option<Arc<LiveTokens>>,
    audit: Option<AuditLog>,
    counts: RefusalCounts,
    denials: LogLimit,
}

/// A route with a role. It is the state of the middleware [`guard`].
#[derive(Clone, Debug)]
pub(super) struct GuardedRoute {
    pub(super) plane: Arc<AdminPlane>,
    pub(super) role: AdminRole,
    /// Whether the key of the trial that the path names suffices instead of the role.
    pub(super) admits_key: bool,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Whether the audit log has a record of each request.
    pub(super) is_recorded: bool,
    /// Whether the route is a web page. A browser sends the token as a password.
    pub(super) is_page: bool,
}

/// A request that is not permitted.
#[derive(Debug)]
struct Denial {
    cause: DenialCause,
    /// The client, if its token or its key is valid.
    caller: Caller,
    error: AdminError,
}

/// The address of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client(SocketAddr);

impl Connected<IncomingStream<'_, PatientListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, PatientListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// Middleware of a route: answers requests that are not permitted with an error, and records the others.
pub(super) async fn guard(State(route): State<GuardedRoute>, mut request: Request, next: Next) -> Response {
    let guard = &route.plane.guard;
    let parameters = request.extract_parts::<RawPathParams>().await.ok();
    let mut record = AuditRecord {
        time: Timestamp::now(),
        caller: Caller::default(),
        role: route.role,
        method: route.method,
        route: route.path,
        subject: Subject::of_path(route.path, parameters.as_ref()),
        status: None,
        source: request
            .extensions()
            .get::<ConnectInfo<Client>>()
            .map(|ConnectInfo(Client(address))| *address),
        denied: None,
        suppressed: 0,
    };
    match guard.permits(&request, &route, record.subject.trial_id.as_ref()) {
        Ok(caller) => record.caller = caller,
        Err(denial) if route.is_page && denial.cause == DenialCause::Token => {
            // A browser asks for the password only after an answer without it, so its first request is no attempt.
            let is_attempt = request.headers().contains_key(header::AUTHORIZATION);
            let response = if is_attempt { guard.deny(denial, record) } else { denial.error.into_response() };
            return (CHALLENGE, response).into_response();
        }
        Err(denial) => return guard.deny(denial, record),
    }
    let Some(audit) = guard.audit.as_ref().filter(|_| route.is_recorded) else {
        return next.run(request).await;
    };
    let place = match audit.place().await {
        Ok(place) => place,
        Err(failing) => return AdminError::unavailable(failing.to_string()).into_response(),
    };
    let unanswered = Unanswered(Some((place, record)));
    let mut response = next.run(request).await;
    let subject = response.extensions_mut().remove::<Subject>();
    unanswered.answered(response.status().as_u16(), subject).await;
    response
}

/// An action without an answer so far. If it is dropped, the client has left, and the record states that.
struct Unanswered(Option<(Place, AuditRecord)>);

impl Unanswered {
    async fn answered(mut self, status: u16, subject: Option<Subject>) {
        let Some((place, mut record)) = self.0.take() else { return };
        record.status = Some(status);
        record.subject = subject.unwrap_or(record.subject);
        place.write(&record).await;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some((place, record)) = self.0.take() {
            place.leave(&record);
        }
    }
}

impl AdminGuard {
    /// Guards with the token of `admission` and with `tokens`. Without both, with the rule of `admission` for clients
    /// without a token.
    pub(crate) fn new(
        admission: Admission,
        tokens: Option<Arc<LiveTokens>>,
        audit: Option<AuditLog>,
        counts: RefusalCounts,
    ) -> Self {
        let token = admission.token.as_deref().map(AdminToken::of_token_file);
        let without_token = Admission { token: None, ..admission };
        let denials = LogLimit::new(DENIALS_AT_ONCE, DENIAL_INTERVAL);
        Self { without_token, token, tokens, audit, counts, denials }
    }

    /// Reads the file of tokens again when it changes, until `stopped`.
    pub(crate) fn watch(&self, stopped: CancellationToken) {
        if let Some(tokens) = &self.tokens {
            tokio::spawn(Arc::clone(tokens).watch(self.counts.clone(), stopped));
        }
    }

    /// Returns the client if it may call the route. `named` is the trial that the path names.
    fn permits(
        &self,
        request: &Request,
        route: &GuardedRoute,
        named: Option<&TrialId>,
    ) -> Result<Caller, Denial> {
        if self.token.is_none() && self.tokens.is_none() {
            return self.without_token.check(request).map(|()| Caller::default()).map_err(|denied| Denial {
                cause: DenialCause::WebPage,
                caller: Caller::default(),
                error: match denied {
                    NotAdmitted::Forbidden(message) => AdminError::forbidden(message),
                    NotAdmitted::Unauthorized(message) => AdminError::unauthorized(message),
                },
            });
        }
        if let Some(token) = self.token_of(request, route.is_page) {
            return route.permits_token(token);
        }
        if let Some(trial) = route.trial_of(request) {
            return route.permits_key_of(trial, named);
        }
        Err(Denial {
            cause: DenialCause::Token,
            caller: Caller::default(),
            error: AdminError::unauthorized(self.no_token()),
        })
    }

    /// Returns the valid token that the request has.
    fn token_of(&self, request: &Request, is_page: bool) -> Option<AdminToken> {
        let of_page = || is_page.then(|| password(authorization(request)?)).flatten();
        let sent = bearer(request).map(str::to_owned).or_else(of_page)?;
        let now = Timestamp::now();
        let of_file = self.token.as_ref().filter(|token| token.is(&TokenHash::of(&sent), now));
        let of_tokens = self.tokens.as_ref().and_then(|tokens| tokens.tokens().find(&sent, now).cloned());
        of_file.cloned().or(of_tokens)
    }

    /// The message for a missing, a wrong and an expired token. It is always the same, so it does not reveal whether a
    /// token exists.
    fn no_token(&self) -> String {
        let flags = match (&self.token, &self.tokens) {
            (Some(_), Some(_)) => "--admin-token-file or --admin-tokens",
            (None, Some(_)) => "--admin-tokens",
            (_, None) => "--admin-token-file",
        };
        format!("the admin plane wants a valid token of {flags} as Authorization: Bearer TOKEN")
    }

    /// Counts and logs a denied request, within the bounds, and returns its answer.
    fn deny(&self, denial: Denial, record: AuditRecord) -> Response {
        let Denial { cause, caller, error } = denial;
        self.counts.admin(cause);
        let response = error.into_response();
        let Some(admitted) = self.denials.admit(Instant::now()) else { return response };
        let (status, suppressed) = (Some(response.status().as_u16()), admitted.suppressed);
        let record = AuditRecord { caller, status, denied: Some(cause), suppressed, ..record };
        match &self.audit {
            Some(audit) => audit.note(&record),
            None => {
                let AuditRecord { caller: Caller { token, key_of_trial }, method, route, source, .. } =
                    record;
                tracing::warn!(
                    ?cause,
                    token = token.as_ref().map(TokenName::as_str),
                    key_of_trial = key_of_trial.as_ref().map(TrialId::as_str),
                    method,
                    route,
                    ?source,
                    suppressed,
                    "denied a request to the admin plane"
                );
            }
        }
        response
    }
}

impl GuardedRoute {
    /// Permits a client with a valid token that has the role.
    fn permits_token(&self, token: AdminToken) -> Result<Caller, Denial> {
        let Self { method, path, role, .. } = self;
        if token.roles.contains(role) {
            return Ok(Caller::with_token(token.name));
        }
        let roles: Vec<_> = token.roles.iter().map(|role| role.as_str()).collect();
        let has = roles.join(", ");
        let message =
            format!("{method} {path} needs the role {role}, and the token {} has only {has}", token.name);
        let caller = Caller::with_token(token.name);
        Err(Denial { cause: DenialCause::Role, caller, error: AdminError::forbidden(message) })
    }

    /// Permits a client with the key of a trial if the route admits keys and its path names this trial.
    fn permits_key_of(&self, trial: TrialId, named: Option<&TrialId>) -> Result<Caller, Denial> {
        let Self { method, path, role, .. } = self;
        if self.admits_key && named == Some(&trial) {
            return Ok(Caller::with_key_of(trial));
        }
        let message = format!(
            "{method} {path} needs the role {role}, and the key of a trial permits reading the calls and answers of \
             that trial alone"
        );
        let caller = Caller::with_key_of(trial);
        Err(Denial { cause: DenialCause::Role, caller, error: AdminError::forbidden(message) })
    }

    /// Returns the trial whose key the request has in the place of a token.
    fn trial_of(&self, request: &Request) -> Option<TrialId> {
        let key = TrialKey::parse(bearer(request)?)?;
        let trial = self.plane.lifecycle.trials.by_key(&key).ok()?;
        Some(trial.opened().facts.trial_id.clone())
    }
}

fn authorization(request: &Request) -> Option<&str> {
    request.headers().get(header::AUTHORIZATION)?.to_str().ok()
}

/// Returns the bearer token of the request.
fn bearer(request: &Request) -> Option<&str> {
    authorization(request)?.strip_prefix("Bearer ")
}
