//! The requests for replicas at run time: status, adding, removing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};

use super::AdminPlane;
use super::audit::Subject;
use super::endpoint::Created;
use super::error::AdminError;
use crate::api::{AddUpstream, UpstreamState, UpstreamStatus};
use crate::upstream::{Address, Replica, ReplicaId};

pub(super) async fn list(State(plane): State<Arc<AdminPlane>>) -> Json<Vec<UpstreamStatus>> {
    Json(plane.lifecycle.upstream.replicas().iter().map(|replica| replica.status()).collect())
}

pub(super) async fn add(
    State(plane): State<Arc<AdminPlane>>,
    body: Result<Json<AddUpstream>, JsonRejection>,
) -> Result<Created<UpstreamStatus>, AdminError> {
    let Json(asked) = body?;
    let address: Address = asked.url.parse()?;
    let address = match asked.api_key {
        Some(key) => {
            // First of all, so that no error or log that follows can contain the key.
            plane.lifecycle.redaction.learn(&key);
            address.with_api_key(&key)?
        }
        None => address,
    };
    let added = plane.lifecycle.upstream.add(address)?.status();
    let subject = Subject { upstream_id: Some(added.id), ..Subject::default() };
    Ok(Created { body: added, subject })
}

pub(super) async fn remove(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<ReplicaId>, PathRejection>,
) -> Result<Json<UpstreamStatus>, AdminError> {
    let Path(id) = id?;
    let removed = plane.lifecycle.upstream.remove(id);
    let removed = removed.ok_or_else(|| AdminError::not_found(format!("there is no upstream {id}")))?;
    Ok(Json(removed.status()))
}

impl Replica {
    fn status(&self) -> UpstreamStatus {
        let reason = self.ejected();
        UpstreamStatus {
            id: self.id,
            url: self.address().to_string(),
            state: match reason {
                // A drained replica may be ejected too. It never returns, so draining has precedence.
                _ if self.is_draining() => UpstreamState::Draining,
                Some(_) => UpstreamState::Ejected,
                None => UpstreamState::Healthy,
            },
            reason,
            in_flight: self.in_flight.load(Ordering::Relaxed) as u64,
            trials: self.trials.load(Ordering::Relaxed) as u64,
            models: self.card().map(|card| card.models.clone()).unwrap_or_default(),
            version: self.version(),
        }
    }
}
