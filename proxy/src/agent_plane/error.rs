//! The proxy's own errors on the agent plane, in the shape that the agent's client reads.

use std::borrow::Cow;
use std::num::NonZeroUsize;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;

use crate::agent_plane::body_budget::BudgetFull;
use crate::common::redaction::Redaction;
use crate::common::trial_key::IdentityError;
use crate::dialect::bad_request::BadRequest;
use crate::dialect::error_shape::ErrorShape;
use crate::dialect::route::RouteError;
use crate::dialect::upstream_error::UpstreamError;
use crate::lifecycle::open::OpenError;
use crate::store::StoreError;
use crate::trial::CallRefusal;
use crate::trial::call::CallEnded;
use crate::upstream::SendError;

/// An error answer of the proxy itself, not of upstream.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", status.as_u16())]
pub(crate) struct AgentError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<String>,
    message: String,
    retry_after_secs: Option<u32>,
    /// The method that the path accepts, if the request used another.
    allowed: Option<Method>,
}

#[derive(Serialize)]
struct OpenAiBody<'a> {
    error: OpenAiDetail<'a>,
}

#[derive(Serialize)]
struct OpenAiDetail<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: serde_json::Value,
}

impl AgentError {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            code: None,
            param: None,
            message: message.into(),
            retry_after_secs: None,
            allowed: None,
        }
    }

    /// Returns the error of an invalid request, with the `type` that vLLM uses.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message)
    }

    /// Returns the error of a request body that is too large.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "BadRequestError", message)
    }

    /// Returns the error of a connection whose source address has as many connections as it may.
    pub(crate) fn too_many_connections(limit: NonZeroUsize) -> Self {
        let message = format!(
            "your address has {limit} connections to this server, as many as one address may have: end some, or use each \
             for several requests"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, "RateLimitError", message)
            .with_code("address_connections")
            .retry_after(1)
    }

    /// Returns the code of the error, for counting. Errors without a code of their own are counted by their status.
    pub(crate) fn code(&self) -> &'static str {
        self.code.unwrap_or(match self.status {
            StatusCode::BAD_REQUEST => "bad_request",
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "unknown_path",
            StatusCode::REQUEST_TIMEOUT => "request_timeout",
            StatusCode::PAYLOAD_TOO_LARGE => "too_large",
            _ if self.kind == "UpstreamError" => "upstream_error",
            _ => "other",
        })
    }

    /// Removes secrets that the agent may have put in the wrong place, above all its key in a path.
    pub(crate) fn without_secrets(mut self, redaction: &Redaction) -> Self {
        if let Cow::Owned(message) = redaction.redacted(&self.message) {
            self.message = message;
        }
        self
    }

    pub(crate) fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_secs = Some(seconds);
        self
    }

    pub(crate) fn into_response(self, shape: ErrorShape) -> Response<Full<Bytes>> {
        let body = self.body(shape);
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let allowed = self.allowed.and_then(|method| HeaderValue::from_str(method.as_str()).ok());
        headers.extend(allowed.map(|method| (header::ALLOW, method)));
        headers.extend(self.retry_after_secs.map(|seconds| (header::RETRY_AFTER, seconds.into())));
        response
    }

    fn body(&self, shape: ErrorShape) -> Vec<u8> {
        // OpenAI's shape has members for the code and the parameter of the error, which a translation would lose.
        let is_openai = matches!(shape, ErrorShape::OpenAi | ErrorShape::Responses);
        let translated = || shape.translated(&UpstreamError::new(self.status, self.message.as_str()));
        if let Some(body) = (!is_openai).then(translated).flatten() {
            return body;
        }
        let code = self.code.map_or_else(|| self.status.as_u16().into(), Into::into);
        let detail =
            OpenAiDetail { message: &self.message, kind: self.kind, param: self.param.as_deref(), code };
        serde_json::to_vec(&OpenAiBody { error: detail }).unwrap_or_default()
    }
}

impl From<RouteError> for AgentError {
    fn from(error: RouteError) -> Self {
        let message = error.to_string();
        match error {
            RouteError::UnknownPath(_) => Self::new(StatusCode::NOT_FOUND, "NotFoundError", message),
            RouteError::WrongMethod { allowed, .. } => Self {
                allowed: Some(allowed),
                ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "BadRequestError", message)
            },
        }
    }
}

impl From<BadRequest> for AgentError {
    fn from(unsendable: BadRequest) -> Self {
        let param = unsendable.param().map(str::to_owned);
        Self { param, ..Self::bad_request(unsendable.to_string()) }
    }
}

impl From<UpstreamError> for AgentError {
    fn from(error: UpstreamError) -> Self {
        Self::new(error.status, "UpstreamError", error.message)
    }
}

impl From<IdentityError> for AgentError {
    fn from(error: IdentityError) -> Self {
        let (status, kind) = match error {
            IdentityError::Conflicting => (StatusCode::BAD_REQUEST, "BadRequestError"),
            IdentityError::Missing | IdentityError::Malformed | IdentityError::Unknown => {
                (StatusCode::UNAUTHORIZED, "AuthenticationError")
            }
        };
        Self::new(status, kind, error.to_string()).with_code("invalid_api_key")
    }
}

impl From<CallRefusal> for AgentError {
    fn from(refusal: CallRefusal) -> Self {
        let rate_limit = |code| {
            Self::new(StatusCode::TOO_MANY_REQUESTS, "RateLimitError", refusal.to_string()).with_code(code)
        };
        match refusal {
            CallRefusal::Sealed => {
                Self::new(StatusCode::GONE, "TrialSealedError", refusal.to_string()).with_code("trial_sealed")
            }
            CallRefusal::TooManyCalls(_) | CallRefusal::TooManyTokens(_) => rate_limit("trial_limit_reached"),
            // These two limits are transient: calls in flight end, and time passes.
            CallRefusal::TooManyInFlight(_) => rate_limit("trial_calls_in_flight").retry_after(1),
            CallRefusal::TooManyPerMinute { wait, .. } => {
                // The wait is a minute at most.
                rate_limit("trial_call_rate").retry_after(u32::try_from(wait.as_secs()).unwrap_or(60))
            }
            CallRefusal::BodyTooLarge(_) => {
                Self::too_large(refusal.to_string()).with_code("trial_limit_reached")
            }
        }
    }
}

impl From<BudgetFull> for AgentError {
    fn from(full: BudgetFull) -> Self {
        let (status, kind) = match full {
            BudgetFull::OfTrial => (StatusCode::TOO_MANY_REQUESTS, "RateLimitError"),
            BudgetFull::OfAll => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError"),
        };
        Self::new(status, kind, full.to_string()).with_code("request_memory_full").retry_after(1)
    }
}

impl From<CallEnded> for AgentError {
    fn from(_: CallEnded) -> Self {
        CallRefusal::Sealed.into()
    }
}

impl From<StoreError> for AgentError {
    fn from(error: StoreError) -> Self {
        // The store retries a failing disk four times per second, so a retry soon makes sense.
        let code = "captures_unavailable";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", error.to_string())
            .with_code(code)
            .retry_after(5)
    }
}

impl From<OpenError> for AgentError {
    fn from(error: OpenError) -> Self {
        if let OpenError::Store(error) = error {
            return error.into();
        }
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", error.to_string())
    }
}

impl From<SendError> for AgentError {
    fn from(error: SendError) -> Self {
        let of = |status, code| Self::new(status, "UpstreamError", error.to_string()).with_code(code);
        match error {
            // Health checks notice a recovered replica within this time.
            SendError::NoneTakesCalls(_) => of(StatusCode::SERVICE_UNAVAILABLE, "no_upstream").retry_after(5),
            SendError::NoAnswer { .. } => of(StatusCode::BAD_GATEWAY, "upstream_unreachable"),
            SendError::Redirects { .. } => of(StatusCode::BAD_GATEWAY, "upstream_redirects"),
            SendError::Silent { .. } => of(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout"),
        }
    }
}
