//! The errors of calls.

use axum::Json;
use axum::extract::rejection::BytesRejection;
use axum::http::header::RETRY_AFTER;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use rolltap_proxy::NotAdmitted;
use serde_json::json;
use tokio::task::JoinError;

use crate::environment::EnvironmentError;
use crate::failure::chain;

/// Why a call failed. Each kind has a code and a status, and its text is for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GymError {
    /// The request is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// The request is too large.
    #[error("{0}")]
    TooLarge(String),
    #[error(
        "there is no environment {0:?}: POST /v1/envs makes one, GET /v1/envs lists those that there are"
    )]
    UnknownEnv(String),
    #[error("there is no {0} {1} here; docs/reference/env-server-api.md has all there is")]
    NoSuchPath(Method, String),
    #[error("the environment has not been reset yet: POST /v1/envs/ID/reset comes first")]
    NotReset,
    #[error("the episode is over: reset begins another")]
    Done,
    #[error("another call on this environment is under way; each has one at a time")]
    Busy,
    #[error("the environment was reset while this step was under way")]
    Reset,
    /// The lease ended without a call.
    #[error(
        "the environment was removed: no call came within its lease of {0} s. Create another, or request a longer lease_seconds"
    )]
    Expired(String),
    #[error("the environment is closed")]
    Closed,
    /// The container or its equivalent no longer exists.
    #[error("the environment is gone: {0}. Reset makes a new one")]
    Vanished(String),
    #[error(
        "there are {0} environments already, which is the most that this server has at once (--max-envs)"
    )]
    TooMany(usize),
    #[error("the server is stopping")]
    Stopping,
    /// The environment could not be built, started or used.
    #[error("{0}")]
    EnvironmentFailed(String),
    #[error("{0}")]
    Unauthorized(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("the server failed: {0}")]
    Internal(String),
}

impl GymError {
    pub(super) fn environment_failed(error: &EnvironmentError) -> Self {
        Self::EnvironmentFailed(chain(error))
    }

    fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "bad_request"),
            Self::UnknownEnv(_) => (StatusCode::NOT_FOUND, "unknown_env"),
            Self::NoSuchPath(..) => (StatusCode::NOT_FOUND, "no_such_path"),
            Self::NotReset => (StatusCode::CONFLICT, "not_reset"),
            Self::Done => (StatusCode::CONFLICT, "done"),
            Self::Busy => (StatusCode::CONFLICT, "busy"),
            Self::Reset => (StatusCode::CONFLICT, "reset"),
            Self::Expired(_) => (StatusCode::GONE, "expired"),
            Self::Closed => (StatusCode::GONE, "closed"),
            Self::Vanished(_) => (StatusCode::GONE, "vanished"),
            Self::TooMany(_) => (StatusCode::SERVICE_UNAVAILABLE, "too_many"),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
            Self::EnvironmentFailed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "environment_failed"),
            Self::Unauthorized(_) => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}

impl IntoResponse for GymError {
    fn into_response(self) -> Response {
        let (status, code) = self.kind();
        // An episode takes a while, so a place does not become free at once.
        let retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some([(RETRY_AFTER, "5")]);
        let body = json!({"error": {"code": code, "message": self.to_string()}});
        (status, retry_after, Json(body)).into_response()
    }
}

impl From<JoinError> for GymError {
    fn from(died: JoinError) -> Self {
        Self::Internal(died.to_string())
    }
}

impl From<BytesRejection> for GymError {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge(rejection.body_text()),
            _ => Self::BadRequest(rejection.body_text()),
        }
    }
}

impl From<NotAdmitted> for GymError {
    fn from(error: NotAdmitted) -> Self {
        match error {
            NotAdmitted::Unauthorized(message) => Self::Unauthorized(message),
            NotAdmitted::Forbidden(message) => Self::Forbidden(message),
        }
    }
}
