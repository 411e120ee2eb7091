//! The guard of each route of the admin plane: who calls, whether the token has the role of the route, and the record in
//! the audit log.

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
use tokio_util::sync::CancellationToken;

use super::AdminPlane;
use super::admission::{Admission, NotAdmitted};
use super::audit::{AuditLog, AuditRecord, Place, Subject};
use super::basic_auth::{CHALLENGE, password};
use super::error::AdminError;
use super::role::AdminRole;
use super::slow_reader::PatientListener;
use super::tokens::live::LiveTokens;
use super::tokens::{AdminToken, TokenHash, TokenName};
use crate::common::log_limit::LogLimit;
use crate::common::refusal_counts::{DenialCause, RefusalCounts};

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
    /// The name of a valid token without the role.
    token: Option<TokenName>,
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
        token: None,
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
    match guard.permits(&request, &route) {
        Ok(token) => record.token = token,
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

    /// Returns the name of the client's token if the client may call the route. The name is `None` if no token is
    /// necessary.
    fn permits(&self, request: &Request, route: &GuardedRoute) -> Result<Option<TokenName>, Denial> {
        if self.token.is_none() && self.tokens.is_none() {
            return self.without_token.check(request).map(|()| None).map_err(|denied| Denial {
                cause: DenialCause::WebPage,
                token: None,
                error: match denied {
                    NotAdmitted::Forbidden(message) => AdminError::forbidden(message),
                    NotAdmitted::Unauthorized(message) => AdminError::unauthorized(message),
                },
            });
        }
        let token = self.token_of(request, route.is_page).ok_or_else(|| Denial {
            cause: DenialCause::Token,
            token: None,
            error: AdminError::unauthorized(self.no_token()),
        })?;
        if token.roles.contains(&route.role) {
            return Ok(Some(token.name));
        }
        let GuardedRoute { method, path, role, .. } = route;
        let roles: Vec<_> = token.roles.iter().map(|role| role.as_str()).collect();
        let has = roles.join(", ");
        let message =
            format!("{method} {path} needs the role {role}, and the token {} has only {has}", token.name);
        Err(Denial {
            cause: DenialCause::Role,
            token: Some(token.name),
            error: AdminError::forbidden(message),
        })
    }

    /// Returns the valid token that the request has.
    fn token_of(&self, request: &Request, is_page: bool) -> Option<AdminToken> {
        let authorization = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
        let bearer = authorization.strip_prefix("Bearer ").map(str::to_owned);
        let sent = bearer.or_else(|| is_page.then(|| password(authorization)).flatten())?;
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
        let Denial { cause, token, error } = denial;
        self.counts.admin(cause);
        let response = error.into_response();
        let Some(admitted) = self.denials.admit(Instant::now()) else { return response };
        let (status, suppressed) = (Some(response.status().as_u16()), admitted.suppressed);
        let record = AuditRecord { token, status, denied: Some(cause), suppressed, ..record };
        match &self.audit {
            Some(audit) => audit.note(&record),
            None => {
                let AuditRecord { token, method, route, source, .. } = record;
                let token = token.as_ref().map(TokenName::as_str);
                tracing::warn!(
                    ?cause,
                    token,
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
