//! Errors of the admin plane.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::header::RETRY_AFTER;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use rolltap_rollout::ids::{GroupId, RewardVersion, TrialId};
use tokio::task::JoinError;

use super::prepare::InvalidChoice;
use crate::api::{ErrorBody, ErrorDetail};
use crate::common::in_words::in_words;
use crate::dialect::InvalidSampling;
use crate::feed::CursorError;
use crate::lifecycle::open::OpenError;
use crate::lifecycle::reward::RewardError;
use crate::lifecycle::seal::SealError;
use crate::store::StoreError;
use crate::upstream::{AddError, InvalidAddress};

/// An error answer. `kind` is the `type` of its body.
#[derive(Debug)]
pub(crate) struct AdminError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    /// The time after which the request may succeed. `None` if a retry is useless.
    retry_after: Option<Duration>,
}

impl AdminError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        // Unavailability is transient: the store retries a failing disk four times per second.
        let is_transient = status == StatusCode::SERVICE_UNAVAILABLE;
        let retry_after = is_transient.then_some(Duration::from_secs(5));
        Self { status, kind, message: message.into(), retry_after }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "gone", message)
    }

    pub(super) fn unknown_trial(id: &TrialId) -> Self {
        Self::not_found(format!(
            "there is no trial {id}: POST /v1/trials opens one, GET /v1/trials lists those that there are"
        ))
    }

    pub(super) fn unknown_group(id: &GroupId) -> Self {
        Self::not_found(format!(
            "there is no group {id}: it begins with the first trial that is opened with this group_id; GET /v1/groups \
             lists those that there are"
        ))
    }

    pub(super) fn unknown_version(version: &RewardVersion, known: &BTreeSet<RewardVersion>) -> Self {
        const NAMED: usize = 10;
        let names: Vec<_> = known.iter().take(NAMED).map(RewardVersion::as_str).collect();
        let known = match names.as_slice() {
            [] => "no trial has one; `rolltap regrade` makes one, and without reward_version each trial has its own \
                   reward"
                .to_owned(),
            names => format!("there are: {}", names.join(", ")),
        };
        Self::not_found(format!("no trial has a reward of version {version}: {known}"))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(super) fn too_many(message: impl Into<String>, retry_after: Duration) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message);
        Self { retry_after: Some(retry_after), ..error }
    }

    pub(super) fn no_such_path(method: &Method, path: &str) -> Self {
        let message = format!("there is no {method} {path} on the admin plane; agents call the agent plane");
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let error =
            ErrorDetail { message: self.message, kind: self.kind.to_owned(), code: self.status.as_u16() };
        let seconds = |after: Duration| after.as_secs_f64().ceil().max(1.0).to_string();
        let retry_after = self.retry_after.map(|after| [(RETRY_AFTER, seconds(after))]);
        (self.status, retry_after, Json(ErrorBody { error })).into_response()
    }
}

impl From<JoinError> for AdminError {
    fn from(died: JoinError) -> Self {
        Self::internal(format!("it was cut off: {died}"))
    }
}

impl From<JsonRejection> for AdminError {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), "invalid_request", body_problem(&rejection))
    }
}

impl From<InvalidSampling> for AdminError {
    fn from(error: InvalidSampling) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<PathRejection> for AdminError {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), "invalid_request", format!("in the path: {}", cause(&rejection)))
    }
}

impl From<QueryRejection> for AdminError {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), "invalid_request", format!("in the query: {}", cause(&rejection)))
    }
}

/// Describes why a request body is not usable.
fn body_problem(rejection: &JsonRejection) -> String {
    match rejection {
        JsonRejection::MissingJsonContentType(_) => {
            "expected a JSON body with the header `content-type: application/json`, and the header is missing or names \
             another type: curl needs -H 'content-type: application/json'"
                .to_owned()
        }
        JsonRejection::JsonSyntaxError(_) => format!("the body is not JSON: {}", cause(rejection)),
        JsonRejection::JsonDataError(_) => format!("in the body: {}", cause(rejection)),
        // The body is too large, or its connection broke.
        other => other.body_text(),
    }
}

/// Returns the parser's own message in plain words, without the words that axum puts before it.
fn cause(rejection: &dyn std::error::Error) -> String {
    in_words(&rejection.source().map_or_else(|| rejection.to_string(), ToString::to_string))
}

impl From<CursorError> for AdminError {
    fn from(error: CursorError) -> Self {
        match error {
            // Retention removed the trials for good, so a retry is useless.
            CursorError::Gap { .. } => Self::gone(error.to_string()),
            _ => Self::invalid(error.to_string()),
        }
    }
}

impl From<InvalidChoice> for AdminError {
    fn from(error: InvalidChoice) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<InvalidAddress> for AdminError {
    fn from(error: InvalidAddress) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<AddError> for AdminError {
    fn from(error: AddError) -> Self {
        match error {
            AddError::AddressTaken(_) => Self::conflict(error.to_string()),
            AddError::Tls(_) => Self::invalid(error.to_string()),
        }
    }
}

impl From<OpenError> for AdminError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NameTaken(taken) => Self::conflict(taken.to_string()),
            OpenError::Refused(refused) if refused.is_of_request() => Self::invalid(refused.to_string()),
            OpenError::Refused(refused) => Self::conflict(refused.to_string()),
            OpenError::Store(error) => error.into(),
            OpenError::Name(error) => Self::invalid(error.to_string()),
            OpenError::CutOff(error) => error.into(),
        }
    }
}

impl From<SealError> for AdminError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Store(error) => error.into(),
            SealError::CutOff(error) => error.into(),
        }
    }
}

impl From<RewardError> for AdminError {
    fn from(error: RewardError) -> Self {
        match error {
            RewardError::Conflict(conflict) => Self::conflict(conflict.to_string()),
            RewardError::Store(error) => error.into(),
            RewardError::CutOff(error) => error.into(),
        }
    }
}
