//! The requests for submissions. The service that takes them is in the same process, and gets each request through a
//! channel ([`SubmissionDesk`]). A proxy without the service answers 404.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;
use rolltap_rollout::ids::SubmissionId;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use super::AdminPlane;
use super::audit::Subject;
use super::endpoint::Answer;
use super::error::AdminError;
use super::openapi::Operation;
use super::paged::{Paged, page_size};
use crate::api::{CancelSubmissions, Submission, Submit};

/// The number of requests that may wait for the service.
const WAITING: usize = 64;

/// The side of the admin plane: sends requests to the service.
#[derive(Clone, Debug)]
pub struct SubmissionDesk(mpsc::Sender<SubmissionRequest>);

/// A request to the service. The service answers each one once.
#[derive(Debug)]
pub enum SubmissionRequest {
    /// Adds a submission.
    Submit {
        /// The groups to sample.
        submit: Box<Submit>,
        /// The current policy version.
        policy_version: i32,
        /// Takes the new submission, or the earlier one with the same idempotency key.
        answer: oneshot::Sender<Result<Submission, SubmissionRefusal>>,
    },
    /// Reads one submission.
    Read {
        /// The submission.
        id: SubmissionId,
        /// Takes the submission, or `None` if it is unknown.
        answer: oneshot::Sender<Option<Submission>>,
    },
    /// Reads a page of submissions, sorted by id.
    List {
        /// Which submissions to read.
        page: SubmissionPage,
        /// Takes the page, and whether more submissions follow.
        answer: oneshot::Sender<(Vec<Submission>, bool)>,
    },
    /// Cancels one submission.
    Cancel {
        /// The submission.
        id: SubmissionId,
        /// Takes the submission once no further sample of it begins, or `None` if it is unknown. Running trials may still
        /// be stopping.
        answer: oneshot::Sender<Result<Option<Submission>, SubmissionRefusal>>,
    },
    /// Cancels all submissions of a policy version.
    CancelVersion {
        /// The policy version.
        version: i32,
        /// Takes the cancelled submissions.
        answer: oneshot::Sender<Result<Vec<Submission>, SubmissionRefusal>>,
    },
}

/// Why the service refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionRefusal {
    /// The request cannot be carried out by this service.
    #[error("{0}")]
    Invalid(String),
    /// The idempotency key belongs to another request.
    #[error("{0}")]
    Conflict(String),
    /// The queue has no room.
    #[error("{message}")]
    Full {
        /// The state of the queue.
        message: String,
        /// The time after which there may be room.
        retry_after: Duration,
    },
    /// The service cannot take the request at present.
    #[error("{0}")]
    Unavailable(String),
}

/// The query of `GET /v1/submissions`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmissionPage {
    /// Only submissions whose name sorts after this name.
    pub after: Option<SubmissionId>,
    /// Only submissions that have not ended.
    #[serde(default)]
    pub active: bool,
    /// The largest number of submissions in the answer.
    #[serde(default = "page_size")]
    pub limit: NonZeroUsize,
}

impl SubmissionDesk {
    /// Returns a desk, and the requests that arrive at it.
    pub fn open() -> (Self, mpsc::Receiver<SubmissionRequest>) {
        let (desk, requests) = mpsc::channel(WAITING);
        (Self(desk), requests)
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> SubmissionRequest,
    ) -> Result<T, AdminError> {
        let (answer, answered) = oneshot::channel();
        let is_sent = self.0.send(request(answer)).await.is_ok();
        match answered.await {
            Ok(answer) if is_sent => Ok(answer),
            _ => Err(AdminError::unavailable("the service is ending and takes no request; ask again later")),
        }
    }
}

impl From<SubmissionRefusal> for AdminError {
    fn from(refusal: SubmissionRefusal) -> Self {
        match refusal {
            SubmissionRefusal::Invalid(message) => Self::invalid(message),
            SubmissionRefusal::Conflict(message) => Self::conflict(message),
            SubmissionRefusal::Full { message, retry_after } => Self::too_many(message, retry_after),
            SubmissionRefusal::Unavailable(message) => Self::unavailable(message),
        }
    }
}

/// A submission that is accepted. Its trials have not begun.
pub(super) struct Accepted(Submission);

impl IntoResponse for Accepted {
    fn into_response(self) -> Response {
        let group = self.0.groups.first().map(|group| group.group_id.clone());
        let subject = Subject { group_id: group, ..Subject::default() };
        (StatusCode::ACCEPTED, Extension(subject), Json(self.0)).into_response()
    }
}

impl Answer for Accepted {
    fn describe(operation: &mut Operation<'_>) {
        operation.answer::<Submission>("202", "Accepted and durable.", "application/json");
    }
}

pub(super) async fn submit(
    State(plane): State<Arc<AdminPlane>>,
    body: Result<Json<Submit>, JsonRejection>,
) -> Result<Accepted, AdminError> {
    let Json(submit) = body?;
    let policy_version = plane.lifecycle.upstream.policy().current().ordinal;
    let submit = Box::new(submit);
    let request = |answer| SubmissionRequest::Submit { submit, policy_version, answer };
    Ok(Accepted(plane.desk()?.ask(request).await??))
}

pub(super) async fn list(
    State(plane): State<Arc<AdminPlane>>,
    page: Result<Query<SubmissionPage>, QueryRejection>,
) -> Result<Paged<Submission>, AdminError> {
    let Query(page) = page?;
    let (active, limit) = (page.active, page.limit);
    let (items, has_more) = plane.desk()?.ask(|answer| SubmissionRequest::List { page, answer }).await?;
    let last = items.last().filter(|_| has_more);
    let next = last.map(|last| format!("/v1/submissions?after={}&active={active}&limit={limit}", last.id));
    Ok(Paged { items, next })
}

pub(super) async fn read(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<SubmissionId>, PathRejection>,
) -> Result<Json<Submission>, AdminError> {
    let Path(id) = id?;
    let asked = id.clone();
    let found = plane.desk()?.ask(|answer| SubmissionRequest::Read { id: asked, answer }).await?;
    found.map(Json).ok_or_else(|| unknown(&id))
}

pub(super) async fn cancel(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<SubmissionId>, PathRejection>,
) -> Result<Json<Submission>, AdminError> {
    let Path(id) = id?;
    let asked = id.clone();
    let cancelled = plane.desk()?.ask(|answer| SubmissionRequest::Cancel { id: asked, answer }).await??;
    cancelled.map(Json).ok_or_else(|| unknown(&id))
}

pub(super) async fn cancel_version(
    State(plane): State<Arc<AdminPlane>>,
    body: Result<Json<CancelSubmissions>, JsonRejection>,
) -> Result<Json<Vec<Submission>>, AdminError> {
    let Json(CancelSubmissions { policy_version: version }) = body?;
    let request = |answer| SubmissionRequest::CancelVersion { version, answer };
    Ok(Json(plane.desk()?.ask(request).await??))
}

fn unknown(id: &SubmissionId) -> AdminError {
    AdminError::not_found(format!(
        "there is no submission {id}: POST /v1/submissions makes one, GET /v1/submissions lists those that there are"
    ))
}

impl AdminPlane {
    fn desk(&self) -> Result<&SubmissionDesk, AdminError> {
        let missing =
            "this proxy runs no trials and takes no submissions: `rolltap serve` is the proxy that does";
        self.submissions.as_ref().ok_or_else(|| AdminError::not_found(missing))
    }
}
