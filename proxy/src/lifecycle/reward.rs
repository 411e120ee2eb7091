//! Rewards trials.

use std::sync::Arc;

use rolltap_rollout::rollout::Reward;
use tokio::task::JoinError;

use super::open::Lifecycle;
use crate::common::to_the_end::to_the_end;
use crate::store::{self, Event, StoreError};
use crate::trial::{RewardConflict, Trial};

/// The reason why a reward is not set, or not known to be durable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RewardError {
    #[error(transparent)]
    Conflict(#[from] RewardConflict),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The runtime is shutting down, or the task panicked.
    #[error("it was cut off: {0}")]
    CutOff(#[from] JoinError),
}

impl Lifecycle {
    /// Sets a reward of a trial, the original or one of a version, and returns once it is durable. Idempotent for equal
    /// rewards.
    pub(crate) async fn reward(&self, trial: &Arc<Trial>, reward: Reward) -> Result<(), RewardError> {
        let (lifecycle, trial) = (self.clone(), Arc::clone(trial));
        to_the_end(async move { lifecycle.reward_durably(&trial, reward).await }).await
    }

    async fn reward_durably(&self, trial: &Trial, reward: Reward) -> Result<(), RewardError> {
        let trial_id = &trial.opened().facts.trial_id;
        // The place is reserved first, so that a failing store rejects the reward before the trial changes.
        let place = self.store.reserve().await?;
        let is_new = trial.reward(&reward)?;
        let is_original = reward.version.is_none();
        let rewarded = || match is_original {
            true => Event::Rewarded { trial_id: trial_id.clone(), reward },
            false => Event::Regraded { trial_id: trial_id.clone(), reward },
        };
        // An equal reward may still be in the queue of the store. The flush waits until it is durable.
        let event = if is_new { rewarded() } else { Event::Flush };
        store::outcome(place.append(event).await)?;
        // A version comes after the trial is complete, so it changes nothing in the feed.
        if is_original {
            self.feed.ledger().rewarded(trial_id);
            self.feed.settled().await;
        }
        Ok(())
    }
}
