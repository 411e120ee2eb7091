//! The feed of complete trials.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use futures_util::stream;
use serde::Deserialize;

use super::AdminPlane;
use super::error::AdminError;
use super::prepare::AskedPreparation;
use super::trial_reads::ndjson_body;
use crate::common::seconds::Seconds;
use crate::feed::{Reader, Reading};

/// What `GET /v1/rollouts` takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RolloutsQuery {
    after: Option<String>,
    wait: Option<Seconds>,
    #[serde(default)]
    closed_groups: bool,
    #[serde(default)]
    superseded: bool,
    #[serde(default)]
    allow_gap: bool,
    limit: Option<NonZeroU64>,
    prepare: Option<String>,
    on_fork: Option<String>,
    failed: Option<String>,
    train_constrained: Option<String>,
}

/// A line per trial, made as the reader takes them. A line that cannot be made ends the answer in the middle, so that a
/// client notices.
pub(super) async fn rollouts(
    State(plane): State<Arc<AdminPlane>>,
    asked: Result<Query<RolloutsQuery>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(asked) = asked?;
    let RolloutsQuery { after, wait, closed_groups, superseded, allow_gap, limit, .. } = asked;
    let RolloutsQuery { prepare, on_fork, failed, train_constrained, .. } = asked;
    let prepare = AskedPreparation { prepare, on_fork, failed, train_constrained }.options()?;
    let limit = limit.map(NonZeroU64::get);
    let reading = Reading { after, closed_groups, superseded, allow_gap, limit, prepare };
    let (feed, trials) = (Arc::clone(&plane.lifecycle.feed), Arc::clone(&plane.lifecycle.trials));
    let mut reader = Reader::new(feed, trials, plane.lifecycle.store.clone(), reading)?;
    if let Some(wait) = wait {
        reader.wait(wait.into(), &plane.draining).await;
    }
    let lines = stream::try_unfold(reader, |mut reader| async {
        let line =
            reader.next_line().await.inspect_err(|error| tracing::error!(%error, "a reader's answer ends"));
        Ok::<_, crate::feed::LineError>(line?.map(|line| (line, reader)))
    });
    Ok(ndjson_body(Body::from_stream(lines)))
}
