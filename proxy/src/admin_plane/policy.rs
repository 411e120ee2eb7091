//! The requests for the policy version of tokens, and for the pause around weight updates.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use rolltap_cluster::versions::NamedBy;

use super::AdminPlane;
use super::error::AdminError;
use crate::api::{PausePolicy, PolicyStatus, PolicyVersion, SetPolicy};
use crate::store::{self, Event};
use crate::upstream::policy::Version;

pub(super) async fn status(State(plane): State<Arc<AdminPlane>>) -> Json<PolicyStatus> {
    Json(plane.policy_status())
}

pub(super) async fn set(
    State(plane): State<Arc<AdminPlane>>,
    body: Result<Json<SetPolicy>, JsonRejection>,
) -> Result<Json<PolicyStatus>, AdminError> {
    let Json(asked) = body?;
    let label = asked.version.to_string();
    if label.is_empty() {
        return Err(AdminError::invalid("version is empty: name the weights, like 17 or \"step-17\""));
    }
    let numbered = plane.lifecycle.upstream.policy().number(&label, NamedBy::Trainer).await;
    let number = numbered.map_err(|error| AdminError::unavailable(error.to_string()))?;
    // The place is reserved first, so that a failing store rejects the version before it takes effect.
    let place = plane.lifecycle.store.reserve().await?;
    let (_, kept) = plane.lifecycle.upstream.set_version(&label, number, place);
    store::outcome(kept.await)?;
    Ok(Json(plane.policy_status()))
}

/// Holds new calls. Without a body it answers at once.
pub(super) async fn pause(
    State(plane): State<Arc<AdminPlane>>,
    body: Result<Option<Json<PausePolicy>>, JsonRejection>,
) -> Result<Json<PolicyStatus>, AdminError> {
    let Json(asked) = body?.unwrap_or_default();
    let began = plane.lifecycle.upstream.policy().pause();
    plane.note(began).await;
    // Calls are held before the wait, so that none can start in between.
    if asked.wait {
        plane.lifecycle.upstream.load().ended().await;
    }
    Ok(Json(plane.policy_status()))
}

pub(super) async fn resume(State(plane): State<Arc<AdminPlane>>) -> Json<PolicyStatus> {
    let ended = plane.lifecycle.upstream.policy().resume();
    plane.note(ended).await;
    Json(plane.policy_status())
}

impl AdminPlane {
    /// Records the beginning or the end of a pause. A pause takes effect even if the store cannot write.
    async fn note(&self, change: Option<Event>) {
        if let Some(event) = change {
            self.lifecycle.store.note(event).await;
        }
    }

    fn policy_status(&self) -> PolicyStatus {
        let policy = self.lifecycle.upstream.policy();
        let told = |Version { ordinal, label }| PolicyVersion { version: ordinal, label };
        PolicyStatus {
            current: told(policy.current()),
            paused: policy.is_paused(),
            in_flight: self.lifecycle.upstream.load().in_flight() as u64,
            held: self.lifecycle.upstream.load().held() as u64,
            versions: policy.versions().into_iter().map(told).collect(),
        }
    }
}
