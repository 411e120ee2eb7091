//! The requests for groups: their status, and closing.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use rolltap_rollout::ids::GroupId;

use super::AdminPlane;
use super::error::AdminError;
use crate::api::{CloseGroup, ClosingCause, GroupStatus};

pub(super) async fn list(State(plane): State<Arc<AdminPlane>>) -> Json<Vec<GroupStatus>> {
    Json(plane.lifecycle.feed.ledger().groups())
}

pub(super) async fn status(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<GroupId>, PathRejection>,
) -> Result<Json<GroupStatus>, AdminError> {
    let Path(id) = id?;
    plane.group(&id).map(Json)
}

/// Closes a group. A closed group does not change.
pub(super) async fn close(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<GroupId>, PathRejection>,
    body: Result<Option<Json<CloseGroup>>, JsonRejection>,
) -> Result<Json<GroupStatus>, AdminError> {
    let Path(id) = id?;
    let Json(CloseGroup { drop }) = body?.unwrap_or_default();
    let cause = if drop { ClosingCause::Dropped } else { ClosingCause::Call };
    let feed = &plane.lifecycle.feed;
    if !feed.ledger().close(&id, cause) {
        return Err(AdminError::unknown_group(&id));
    }
    // The ledger only plans the closing. It counts once the sequencer has written it to the store.
    feed.settled().await;
    let group = plane.group(&id)?;
    if group.closed.is_none() {
        let message = format!("that group {id} is closed cannot be written now; ask again");
        return Err(AdminError::unavailable(message));
    }
    Ok(Json(group))
}

impl AdminPlane {
    fn group(&self, id: &GroupId) -> Result<GroupStatus, AdminError> {
        self.lifecycle.feed.ledger().group(id).ok_or_else(|| AdminError::unknown_group(id))
    }
}
