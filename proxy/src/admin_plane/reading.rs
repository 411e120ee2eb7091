//! What tells of trials: status, calls, rollouts.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use rolltap_rollout::ids::TrialId;
use serde::Serialize;

use super::AdminPlane;
use super::error::AdminError;
use crate::api::{CauseFigures, TrialStatus};
use crate::{causes, feed};

pub(super) async fn list(State(plane): State<Arc<AdminPlane>>) -> Json<Vec<TrialStatus>> {
    let mut all = Vec::new();
    for trial in plane.opening.trials.all() {
        all.push(plane.status_of(&trial).await);
    }
    Json(all)
}

pub(super) async fn status(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
) -> Result<Json<TrialStatus>, AdminError> {
    let trial = plane.trial(id)?;
    Ok(Json(plane.status_of(&trial).await))
}

pub(super) async fn causes(State(plane): State<Arc<AdminPlane>>) -> Json<Vec<CauseFigures>> {
    Json(causes::figures(&plane.opening.trials.all(), &plane.opening.store).await)
}

pub(super) async fn calls(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
) -> Result<Response, AdminError> {
    Ok(ndjson(plane.trial(id)?.calls(&plane.opening.store).await))
}

pub(super) async fn rollout(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
) -> Result<Response, AdminError> {
    let trial = plane.trial(id)?;
    let facts = &trial.opened().facts;
    let Some(reward) = trial.reward_if_sealed() else {
        let message = format!("trial {} is open: it has a rollout once it is sealed", facts.trial_id);
        return Err(AdminError::conflict(message));
    };
    let superseded = plane.opening.feed.ledger().standing(&facts.trial_id).superseded;
    let rows = feed::rows(&trial, &plane.opening.store, reward, superseded).await;
    Ok(ndjson(rows.map_err(|error| AdminError::internal(format!("the rows were not made: {error}")))?))
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
