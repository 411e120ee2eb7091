//! The result of a later verification.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rolltap_proxy::api::PutReward;
use rolltap_rollout::ids::{RewardVersion, TrialId};
use rolltap_rollout::rollout::Reward;
use serde::{Deserialize, Serialize};

use super::recorded::Recorded;
use crate::failure::TrialFailure;
use crate::job::RolloutFiles;
use crate::job_dir::{JobDir, RegradeDir};
use crate::trial::is_valid;
use crate::verify::Rewards;

/// The result of a later verification of a job's trials.
#[derive(Debug)]
pub struct RegradeReport {
    /// The directory of the job.
    pub job: JobDir,
    /// The directory of the version.
    pub dir: RegradeDir,
    /// The version.
    pub version: RewardVersion,
    /// All completed trials of the job, in the order of tasks and samples.
    pub trials: Vec<RegradedTrial>,
    /// The number of trials that were not reached, because the run was stopped.
    pub left: usize,
    /// The files with the rollouts of the version. `None` if they could not be written, or if the run was stopped.
    pub rollouts: Option<RolloutFiles>,
    /// Problems of the whole.
    pub problems: Vec<String>,
}

impl RegradeReport {
    /// Returns whether every chosen trial has a reward of the version, without a problem.
    pub fn is_clean(&self) -> bool {
        let is_settled =
            |trial: &RegradedTrial| matches!(trial.outcome, Outcome::Regraded | Outcome::Unchanged);
        self.left == 0 && self.problems.is_empty() && self.trials.iter().all(is_settled)
    }
}

/// A trial with its own reward and with that of the version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegradedTrial {
    /// The trial.
    pub trial: TrialId,
    /// Its task.
    pub task: String,
    /// Its sample.
    pub sample_index: u64,
    /// Its attempt.
    pub attempt: u64,
    /// Whether its tests ran again.
    pub outcome: Outcome,
    /// Why they did not.
    pub reason: Option<String>,
    /// The reward of the trial itself.
    pub before: Standing,
    /// The reward of the version. `None` if the tests could not run.
    pub after: Option<Standing>,
    /// When its verification began.
    pub started_at: Timestamp,
    /// When its verification ended.
    pub finished_at: Timestamp,
    /// Whether the proxy has the trial.
    pub(super) is_at_proxy: bool,
}

/// Whether the tests of a trial ran again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The tests ran again.
    Regraded,
    /// The version has the reward of the trial itself.
    Unchanged,
    /// The tests cannot run again, so the version has no reward.
    Refused,
    /// The environment failed or the run was stopped, and another run tries again.
    Failed,
}

/// A reward as results record it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// The number to train on.
    pub reward: Option<f64>,
    /// Every number of the verifier, by name.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent.
    pub reward_valid: bool,
    /// Why the trial failed.
    pub failure: Option<TrialFailure>,
}

impl Standing {
    /// Returns the reward of tests that ran after this failure, if there was one. The rule of the trial makes the number
    /// to train on.
    pub(super) fn of(trial: &Recorded, verdict: Rewards, failure: Option<TrialFailure>) -> Self {
        let Reward { rewards, reward, .. } = Reward::by_rule(verdict.rewards, trial.reward_rule.as_ref());
        let reward_valid = is_valid(&rewards, failure.as_ref());
        Self { reward, rewards, reward_valid, failure }
    }

    /// Returns the reward of the trial itself.
    pub(super) fn recorded(trial: &Recorded) -> Self {
        Self {
            reward: trial.rewards.reward,
            rewards: trial.rewards.rewards.clone(),
            reward_valid: trial.is_valid,
            failure: trial.failure.clone(),
        }
    }

    fn failure_cause(&self) -> Option<String> {
        self.failure.as_ref().map(|failure| failure.cause.name().to_owned())
    }

    /// Returns the reward to set at the proxy. Only the trial itself is examined for suspicion.
    pub(super) fn to_put(&self, version: &RewardVersion) -> PutReward {
        PutReward {
            rewards: self.rewards.clone(),
            reward: self.reward,
            valid: Some(self.reward_valid),
            failure_cause: self.failure_cause(),
            version: Some(version.clone()),
            suspicious: None,
        }
    }

    pub(super) fn to_reward(&self, version: &RewardVersion) -> Reward {
        Reward {
            rewards: self.rewards.clone(),
            reward: self.reward,
            valid: self.reward_valid,
            failure_cause: self.failure_cause(),
            version: Some(version.clone()),
            suspicious: None,
        }
    }
}

impl RegradedTrial {
    /// Returns a trial that begins its verification now.
    pub(super) fn begun(trial: &Recorded) -> Self {
        let now = Timestamp::now();
        Self {
            trial: trial.name.clone(),
            task: trial.task.clone(),
            sample_index: trial.sample_index,
            attempt: trial.attempt,
            outcome: Outcome::Failed,
            reason: None,
            before: Standing::recorded(trial),
            after: None,
            started_at: now,
            finished_at: now,
            is_at_proxy: trial.is_at_proxy,
        }
    }

    /// Returns the trial with this outcome.
    pub(super) fn ended(self, outcome: Outcome, after: Option<Standing>, reason: Option<String>) -> Self {
        Self { outcome, after, reason, finished_at: Timestamp::now(), ..self }
    }
}
