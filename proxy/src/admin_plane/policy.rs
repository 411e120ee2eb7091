//! The requests for the policy version of tokens, and for the pause around weight updates.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use rolltap_cluster::versions::NamedBy;

use super::AdminPlane;
use super::error::AdminError;
use crate::api::{PausePolicy, PolicyStatus, PolicyVersion, SetPolicy};
use crate::common::clock;
use crate::store::{self, Event, Pause, StoreError};
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
    let pause = plane.lifecycle.upstream.policy().pause();
    plane.note(pause).await?;
    // Calls are held before the wait, so that none can start in between.
    if asked.wait {
        plane.lifecycle.upstream.load().ended().await;
    }
    Ok(Json(plane.policy_status()))
}

pub(super) async fn resume(State(plane): State<Arc<AdminPlane>>) -> Result<Json<PolicyStatus>, AdminError> {
    let policy = plane.lifecycle.upstream.policy();
    if let Some(pause) = policy.current_pause() {
        // The record comes first: a request that failed can then be repeated.
        plane.note(Pause { ended_at: Some(clock::now()), ..pause }).await?;
        policy.resume();
    }
    Ok(Json(plane.policy_status()))
}

impl AdminPlane {
    /// Records the beginning or the end of a pause.
    ///
    /// # Errors
    /// The store of a shard cannot write, so the next holder would not know of the change. Without a cluster, the change takes
    /// effect even then.
    async fn note(&self, pause: Pause) -> Result<(), StoreError> {
        let (store, event) = (&self.lifecycle.store, Event::Paused(pause));
        if self.lifecycle.upstream.policy().is_of_shard() {
            return store.append(event).await;
        }
        store.note(event).await;
        Ok(())
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
