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
use crate::api::{AddUpstream, KvCacheStatus, UpstreamState, UpstreamStatus};
use crate::upstream::{Address, Pool, Replica, ReplicaId};

pub(super) async fn list(State(plane): State<Arc<AdminPlane>>) -> Json<Vec<UpstreamStatus>> {
    let pool = &plane.lifecycle.upstream;
    Json(pool.replicas().iter().map(|replica| status(replica, pool)).collect())
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
    let pool = &plane.lifecycle.upstream;
    let added = status(&*pool.add(address)?, pool);
    let subject = Subject { upstream_id: Some(added.id), ..Subject::default() };
    Ok(Created { body: added, subject })
}

pub(super) async fn remove(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<ReplicaId>, PathRejection>,
) -> Result<Json<UpstreamStatus>, AdminError> {
    let Path(id) = id?;
    let pool = &plane.lifecycle.upstream;
    let removed = pool.remove(id);
    let removed = removed.ok_or_else(|| AdminError::not_found(format!("there is no upstream {id}")))?;
    Ok(Json(status(&removed, pool)))
}

fn status(replica: &Replica, pool: &Pool) -> UpstreamStatus {
    let reason = replica.ejected();
    UpstreamStatus {
        id: replica.id,
        url: replica.address().to_string(),
        state: match reason {
            // A drained replica may be ejected too. It never returns, so draining has precedence.
            _ if replica.is_draining() => UpstreamState::Draining,
            Some(_) => UpstreamState::Ejected,
            None => UpstreamState::Healthy,
        },
        reason,
        in_flight: replica.in_flight.load(Ordering::Relaxed) as u64,
        trials: replica.trials.load(Ordering::Relaxed) as u64,
        models: replica.card().map(|card| card.models.clone()).unwrap_or_default(),
        version: replica.version(),
        kv_cache: pool.cache_status(replica.id).map(|cache| KvCacheStatus {
            open_trials: cache.trials as u64,
            capacity_tokens: cache.report.map(|report| report.capacity),
            limit_tokens: cache.limit,
            forecast_tokens: cache.forecast,
        }),
    }
}
