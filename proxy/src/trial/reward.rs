//! The rewards of a trial. Each is set once.

use rolltap_rollout::ids::RewardVersion;
use rolltap_rollout::rollout::Reward;

use super::Trial;
use crate::common::clock;

/// The reason why a reward was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RewardConflict {
    #[error("the trial has another reward already; a reward is given once")]
    Other,
    #[error(
        "the trial's reward_deadline passed before a reward came: it is complete without one, and takes none any more"
    )]
    DeadlinePassed,
    #[error(
        "the trial has another reward of version {0} already; a version is given once: choose another name"
    )]
    OtherOfVersion(RewardVersion),
    #[error(
        "the trial is not complete, so it takes no reward of version {0}: seal it, and set its own reward first"
    )]
    NotComplete(RewardVersion),
}

/// The `failure_cause` of a trial whose reward did not come in time.
const REWARD_DEADLINE: &str = "reward_deadline";

impl Trial {
    /// Sets a reward. Returns whether it is new. Fails if the trial has another reward of the same version, if the
    /// deadline of the original reward has passed, or if a version comes before the trial is complete.
    pub(crate) fn reward(&self, reward: &Reward) -> Result<bool, RewardConflict> {
        let mut state = self.lock();
        if let Some(version) = &reward.version {
            return match state.rewards.versions.get(version) {
                Some(known) if known == reward => Ok(false),
                Some(_) => Err(RewardConflict::OtherOfVersion(version.clone())),
                None if state.sealed_at.is_none() || state.rewards.original.is_none() => {
                    Err(RewardConflict::NotComplete(version.clone()))
                }
                None => {
                    state.rewards.add(reward.clone());
                    Ok(true)
                }
            };
        }
        let due_at = || self.opened.reward_deadline?.after(state.sealed_at?);
        match &state.rewards.original {
            Some(known) if known == reward => Ok(false),
            Some(known) if *known == missed() => Err(RewardConflict::DeadlinePassed),
            Some(_) => Err(RewardConflict::Other),
            // The timer may not have run yet, so check the deadline here too.
            None if due_at().is_some_and(|due_at| due_at <= clock::now()) => {
                Err(RewardConflict::DeadlinePassed)
            }
            None => {
                state.rewards.add(reward.clone());
                Ok(true)
            }
        }
    }

    /// Returns the original reward after its deadline. If there is none, the trial gets the reward `missed` for good.
    pub(crate) fn reward_or_missed(&self) -> Reward {
        self.lock().rewards.original.get_or_insert_with(missed).clone()
    }

    /// Returns the reward in a version, or the original for `None`, if the trial is sealed: an open trial has no
    /// rollout.
    pub(crate) fn reward_if_sealed(&self, version: Option<&RewardVersion>) -> Option<Reward> {
        let state = self.lock();
        state.sealed_at.map(|_| state.rewards.of(version))
    }

    /// Whether the trial has a reward of this version.
    pub(crate) fn has_version(&self, version: &RewardVersion) -> bool {
        self.lock().rewards.versions.contains_key(version)
    }

    /// Returns the versions in which the trial has a reward.
    pub(crate) fn reward_versions(&self) -> Vec<RewardVersion> {
        self.lock().rewards.versions.keys().cloned().collect()
    }
}

fn missed() -> Reward {
    Reward { failure_cause: Some(REWARD_DEADLINE.to_owned()), ..Reward::default() }
}
