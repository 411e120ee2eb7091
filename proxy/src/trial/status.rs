//! The status of a trial, for the admin plane.

use std::sync::Arc;

use super::{Calls, Trial};
use crate::api;
use crate::common::samples::AttemptStanding;
use crate::store::{Store, Summary};

impl Trial {
    /// Returns the summary of the calls so far. It is computed once for the same calls.
    pub(crate) async fn summary(&self, store: &Store) -> Arc<Summary> {
        let (known, admitted) = {
            let state = self.lock();
            let known = state.summary.as_ref().filter(|summary| match &state.calls {
                Calls::Here(calls) => summary.calls == calls.len() as u64,
                Calls::Stored => true,
            });
            (known.cloned(), state.admitted)
        };
        if let Some(known) = known {
            return known;
        }
        let calls = self.calls(store).await;
        // Calls that end meanwhile are counted the next time.
        let summary = tokio::task::spawn_blocking(move || Summary::of(&calls)).await;
        let summary = Arc::new(summary.unwrap_or_default());
        let mut state = self.lock();
        // If the calls are only in the store, a later reader could not detect that the summary misses some.
        if matches!(state.calls, Calls::Here(_)) || state.admitted == admitted {
            state.summary = Some(Arc::clone(&summary));
        }
        drop(state);
        summary
    }

    /// Returns the status of the trial.
    pub(crate) async fn status(&self, store: &Store, standing: AttemptStanding) -> api::TrialStatus {
        let summary = self.summary(store).await;
        let branch_causes = summary.by_cause();
        let state = self.lock();
        let reward = state.rewards.original.clone();
        let versions = state.rewards.versions.clone();
        let facts = &self.opened.facts;
        api::TrialStatus {
            trial_id: facts.trial_id.clone(),
            task_id: facts.task_id.clone(),
            group_id: facts.group_id.clone(),
            sample_index: facts.sample_index,
            attempt: facts.attempt,
            agent: facts.agent.clone(),
            state: if state.sealed_at.is_some() { api::TrialState::Sealed } else { api::TrialState::Open },
            calls: api::CallCounts {
                total: summary.calls,
                complete: summary.complete,
                failed: summary.calls - summary.complete,
                in_flight: state.in_flight.len() as u64,
            },
            prompt_tokens: summary.prompt_tokens,
            completion_tokens: summary.completion_tokens,
            flaws: summary.flaws.clone(),
            branches: branch_causes.values().map(|cost| cost.branches).sum(),
            branch_causes,
            reward_valid: reward.as_ref().map(|reward| reward.valid),
            reward: reward.as_ref().and_then(|reward| reward.reward),
            failure_cause: reward.as_ref().and_then(|reward| reward.failure_cause.clone()),
            suspicious: reward.as_ref().and_then(|reward| reward.suspicious.clone()),
            rewards: reward.map(|reward| reward.rewards).unwrap_or_default(),
            reward_versions: versions.into_iter().map(|(version, reward)| (version, reward.into())).collect(),
            opened_at: self.opened.at,
            sealed_at: state.sealed_at,
            completed_at: standing.completed_at,
            superseded: standing.superseded,
            metadata: self.opened.metadata.clone(),
        }
    }
}
