//! What tells of trials: status, calls, rollouts.

use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use rolltap_rollout::ids::TrialId;
use serde::{Deserialize, Serialize};

use super::AdminPlane;
use super::error::AdminError;
use super::prepare::AskedPreparation;
use crate::admin_plane::causes;
use crate::api::{CauseFigures, TrialStatus};
use crate::feed;

/// What `GET /v1/trials` takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Trials whose name comes behind this one.
    after: Option<TrialId>,
    #[serde(default = "page_size")]
    limit: NonZeroUsize,
}

/// Trials in one answer where the request names no limit.
fn page_size() -> NonZeroUsize {
    const { NonZeroUsize::new(1000).unwrap() }
}

/// Trials by name. Where there are more, the `Link` header names the next page, as on GitHub.
pub(super) async fn list(
    State(plane): State<Arc<AdminPlane>>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(Page { after, limit }) = page?;
    let (trials, has_more) = plane.lifecycle.trials.page(after.as_ref(), limit.get());
    let mut listed = Vec::with_capacity(trials.len());
    for trial in &trials {
        listed.push(plane.status_of(trial).await);
    }
    let last = trials.last().filter(|_| has_more);
    let next = last.map(|trial| {
        let after = &trial.opened().facts.trial_id;
        [(header::LINK, format!("</v1/trials?limit={limit}&after={after}>; rel=\"next\""))]
    });
    Ok((next, Json(listed)).into_response())
}

pub(super) async fn status(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
) -> Result<Json<TrialStatus>, AdminError> {
    let trial = plane.trial(id)?;
    Ok(Json(plane.status_of(&trial).await))
}

pub(super) async fn causes(State(plane): State<Arc<AdminPlane>>) -> Json<Vec<CauseFigures>> {
    Json(causes::figures(&plane.lifecycle.trials.all(), &plane.lifecycle.store).await)
}

pub(super) async fn calls(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
) -> Result<Response, AdminError> {
    Ok(ndjson(plane.trial(id)?.calls(&plane.lifecycle.store).await))
}

/// What `GET /v1/trials/{id}/rollout` takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RolloutQuery {
    prepare: Option<String>,
    on_fork: Option<String>,
    failed: Option<String>,
    train_constrained: Option<String>,
}

pub(super) async fn rollout(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
    asked: Result<Query<RolloutQuery>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(RolloutQuery { prepare, on_fork, failed, train_constrained }) = asked?;
    let prepare = AskedPreparation { prepare, on_fork, failed, train_constrained }.options()?;
    let trial = plane.trial(id)?;
    let facts = &trial.opened().facts;
    let Some(reward) = trial.reward_if_sealed() else {
        let message = format!("trial {} is open: it has a rollout once it is sealed", facts.trial_id);
        return Err(AdminError::conflict(message));
    };
    let superseded = plane.lifecycle.feed.ledger().standing(&facts.trial_id).superseded;
    let store = &plane.lifecycle.store;
    let failed = |error| AdminError::internal(format!("the rows were not made: {error}"));
    if let Some(options) = prepare {
        let prepared = feed::prepared(&trial, store, reward, superseded, options).await;
        return Ok(ndjson(vec![prepared.map_err(failed)?]));
    }
    let rows = feed::rows(&trial, store, reward, superseded).await;
    Ok(ndjson(rows.map_err(failed)?))
}

/// One JSON object a line, made as the reader takes them.
fn ndjson<T: Serialize + Send + 'static>(items: Vec<T>) -> Response {
    let lines = items.into_iter().map(|item| {
        let mut line = serde_json::to_vec(&item)?;
        line.push(b'\n');
        Ok::<_, serde_json::Error>(Bytes::from(line))
    });
    ndjson_body(Body::from_stream(stream::iter(lines)))
}

pub(super) fn ndjson_body(lines: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response()
}
