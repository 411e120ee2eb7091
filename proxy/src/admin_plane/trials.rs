//! The requests that change a trial: open, seal, reward. `lifecycle` does the work.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use rolltap_rollout::ids::{RewardVersion, TrialId};
use rolltap_rollout::rollout::Reward;

use super::AdminPlane;
use super::audit::Subject;
use super::endpoint::{Created, NoBody};
use super::error::AdminError;
use super::opener_span::OpenerSpan;
use crate::api::{OpenTrial, PutReward, TrialOpened, TrialStatus};
use crate::common::trial_key::TrialKey;
use crate::dialect::check_sampling;
use crate::lifecycle::open::OpenError;
use crate::traces::SpanPlace;
use crate::trial::Trial;

pub(super) async fn open(
    State(plane): State<Arc<AdminPlane>>,
    OpenerSpan(span): OpenerSpan,
    body: Result<Json<OpenTrial>, JsonRejection>,
) -> Result<Created<TrialOpened>, AdminError> {
    let Json(asked) = body?;
    check_sampling(&asked.sampling)?;
    let Some(secret) = &asked.idempotency_key else {
        let key = plane.shard.key();
        let key = key.map_err(|error| AdminError::internal(format!("no randomness for a key: {error}")))?;
        let trial = plane.open_new(asked, &key, span).await?;
        return Ok(plane.opened(&trial, &key));
    };
    let Some(name) = asked.trial_id.clone() else {
        return Err(AdminError::invalid("idempotency_key is given without trial_id, which names the trial"));
    };
    let key = plane.shard.key_of(secret.as_bytes());
    let trial = match plane.lifecycle.opened_before(&key).await {
        // The answer to the first request was lost.
        Some(trial) => trial,
        None => match plane.open_new(asked, &key, span).await {
            // The first request was carried out meanwhile, or the name is that of another trial.
            Err(OpenError::NameTaken(taken)) => {
                plane.lifecycle.opened_before(&key).await.ok_or(OpenError::NameTaken(taken))?
            }
            opened => opened?,
        },
    };
    let opened = &trial.opened().facts.trial_id;
    if *opened != name {
        return Err(AdminError::conflict(format!("the idempotency_key is that of trial {opened}")));
    }
    Ok(plane.opened(&trial, &key))
}

/// Answers without a body.
pub(super) async fn exists(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
) -> Result<NoBody, AdminError> {
    plane.trial(id).map(|_| NoBody)
}

pub(super) async fn seal(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
) -> Result<Json<TrialStatus>, AdminError> {
    let trial = plane.trial(id)?;
    plane.lifecycle.seal(&trial).await?;
    Ok(Json(plane.status_of(&trial).await))
}

pub(super) async fn reward(
    State(plane): State<Arc<AdminPlane>>,
    id: Result<Path<TrialId>, PathRejection>,
    body: Result<Json<PutReward>, JsonRejection>,
) -> Result<Json<TrialStatus>, AdminError> {
    let trial = plane.trial(id)?;
    let Json(put) = body?;
    plane.lifecycle.reward(&trial, reward_of(put)).await?;
    Ok(Json(plane.status_of(&trial).await))
}

/// The reward of this body. Members that the body lacks are those of [`Reward::from_named`].
fn reward_of(put: PutReward) -> Reward {
    let PutReward { reward, rewards, valid, failure_cause, version, suspicious } = put;
    let named = Reward::from_named(rewards);
    let reward = reward.or(named.reward);
    let valid = valid.unwrap_or(reward.is_some());
    Reward { reward, valid, failure_cause, rewards: named.rewards, version, suspicious }
}

impl AdminPlane {
    async fn open_new(
        &self,
        asked: OpenTrial,
        key: &TrialKey,
        span: Option<SpanPlace>,
    ) -> Result<Arc<Trial>, OpenError> {
        // The runner's span is stored even without a collector: the next process of the proxy may have one.
        let traceparent = span.map(|span| span.traceparent());
        self.lifecycle.open(asked, key.clone(), traceparent).await
    }

    fn opened(&self, trial: &Trial, key: &TrialKey) -> Created<TrialOpened> {
        let facts = &trial.opened().facts;
        let (trial_id, group_id) = (facts.trial_id.clone(), facts.group_id.clone());
        let base_urls = self.public_url.base_urls(key);
        let subject = Subject { trial_id: Some(trial_id.clone()), group_id, ..Subject::default() };
        Created { body: TrialOpened { trial_id, key: key.reveal().to_owned(), base_urls }, subject }
    }

    /// Returns the trial that the path names.
    pub(super) fn trial(&self, id: Result<Path<TrialId>, PathRejection>) -> Result<Arc<Trial>, AdminError> {
        let Path(id) = id?;
        self.lifecycle.trials.by_id(&id).ok_or_else(|| AdminError::unknown_trial(&id))
    }

    /// Checks that at least one trial has a reward of this version, so that a mistyped name is no reading without rewards.
    pub(super) fn version_exists(&self, version: Option<&RewardVersion>) -> Result<(), AdminError> {
        let Some(version) = version else { return Ok(()) };
        let trials = self.lifecycle.trials.all();
        if trials.iter().any(|trial| trial.has_version(version)) {
            return Ok(());
        }
        let known: BTreeSet<_> = trials.iter().flat_map(|trial| trial.reward_versions()).collect();
        Err(AdminError::unknown_version(version, &known))
    }

    /// Returns the status of a trial, including its place among the attempts of its sample.
    pub(super) async fn status_of(&self, trial: &Trial) -> TrialStatus {
        let standing = self.lifecycle.feed.ledger().standing(&trial.opened().facts.trial_id);
        trial.status(&self.lifecycle.store, standing).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_number_is_found_and_never_made_up() {
        let put = |rewards: &[(&str, f64)], reward| PutReward {
            rewards: rewards.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
            reward,
            ..PutReward::default()
        };
        let number = |put| reward_of(put).reward;
        assert_eq!(number(put(&[], None)), None);
        assert_eq!(number(put(&[("score", 0.5)], None)), Some(0.5));
        assert_eq!(number(put(&[("a", 1.0), ("reward", 0.25)], None)), Some(0.25));
        assert_eq!(number(put(&[("a", 1.0), ("b", 0.0)], None)), None);
        assert_eq!(number(put(&[("reward", 1.0)], Some(0.0))), Some(0.0));
        assert!(!reward_of(put(&[], None)).valid && reward_of(put(&[("x", 0.0)], None)).valid);
    }
}
