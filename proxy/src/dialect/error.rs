//! Errors of our own on the agent plane, in the shape that the agent's client reads.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;

use crate::call_under_way::Ended;
use crate::identity::IdentityError;
use crate::store::StoreError;
use crate::trial::Refusal;
use crate::upstream::Unreachable;

/// An answer that comes from us and not from upstream.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", status.as_u16())]
pub(crate) struct AgentError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    message: String,
}

/// OpenAI's and vLLM's shape: `{"error": {message, type, param, code}}`.
#[derive(Serialize)]
struct Body<'a> {
    error: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: serde_json::Value,
}

impl AgentError {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code: None, message: message.into() }
    }

    /// As vLLM words what is wrong with a request.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message)
    }

    fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let code = self.code.map_or_else(|| self.status.as_u16().into(), Into::into);
        let detail = Detail { message: &self.message, kind: self.kind, param: None, code };
        let body = serde_json::to_vec(&Body { error: detail }).unwrap_or_default();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
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

impl From<Refusal> for AgentError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Sealed => {
                Self::new(StatusCode::GONE, "TrialSealedError", refusal.to_string()).with_code("trial_sealed")
            }
            Refusal::TooManyCalls(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "RateLimitError", refusal.to_string())
                    .with_code("trial_limit_reached")
            }
        }
    }
}

impl From<Ended> for AgentError {
    fn from(_: Ended) -> Self {
        Refusal::Sealed.into()
    }
}

impl From<StoreError> for AgentError {
    fn from(error: StoreError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", error.to_string())
    }
}

impl From<Unreachable> for AgentError {
    fn from(error: Unreachable) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "UpstreamError", error.to_string())
            .with_code("upstream_unreachable")
    }
}
