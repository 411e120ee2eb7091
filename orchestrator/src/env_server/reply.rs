//! The replies to callers, as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::failure::TrialFailure;
use crate::verify::Rewards;

/// The reply to `POST /v1/envs`.
#[derive(Debug, Serialize)]
pub(super) struct Created {
    pub(super) env_id: String,
    pub(super) task_id: String,
    /// The instruction as in the task. The local environment has other paths than Harbor, and the reply to a reset has
    /// these.
    pub(super) instruction: String,
    pub(super) lease_seconds: f64,
    pub(super) status: &'static str,
}

/// The reply to `POST /v1/envs/{id}/reset`.
#[derive(Debug, Serialize)]
pub(super) struct ResetReply {
    pub(super) observation: String,
    pub(super) info: ResetInfo,
}

#[derive(Debug, Serialize)]
pub(super) struct ResetInfo {
    pub(super) instruction: String,
    pub(super) task_id: String,
    pub(super) step: u32,
    /// The prompt that the terminal agent would send to its model: the rules, the task and the observation.
    pub(super) prompt: String,
}

/// The reply to `POST /v1/envs/{id}/step`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct StepReply {
    pub(super) observation: String,
    /// 0 until the episode is done, and if `info.reward_valid` is false.
    pub(super) reward: f64,
    pub(super) done: bool,
    pub(super) info: StepInfo,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct StepInfo {
    /// The number of steps of this episode, including this step.
    pub(super) step: u32,
    pub(super) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parse_error: Option<String>,
    /// Whether the task was declared complete or the shell ended.
    pub(super) terminated: bool,
    /// Whether the step limit or the task's time limit ended the episode.
    pub(super) truncated: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) terminal_closed: bool,
    #[serde(flatten)]
    pub(super) verdict: Option<Verdict>,
}

/// The verdict of the tests, at the end of an episode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    pub(super) reward_valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rewards: Option<BTreeMap<String, f64>>,
    /// Harbor's name of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure_cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
}

/// The cause if the tests gave several numbers and no `reward`. It is rolltap's own, because Harbor does not choose a
/// number.
const NO_SINGLE_REWARD: &str = "NoSingleRewardError";

impl Verdict {
    /// Returns the reward and the verdict. The reward is 0 if there is none, and the verdict then marks it as invalid.
    pub(super) fn of(judged: Result<Rewards, TrialFailure>) -> (f64, Self) {
        let none = Self { reward_valid: false, rewards: None, failure_cause: None, failure: None };
        match judged {
            Ok(Rewards { rewards, reward: Some(reward), .. }) => {
                (reward, Self { reward_valid: true, rewards: Some(rewards), ..none })
            }
            Ok(Rewards { rewards, reward: None, .. }) => {
                let failure = "the tests gave no number named \"reward\", and not just one".to_owned();
                let cause = Some(NO_SINGLE_REWARD.to_owned());
                (0.0, Self { rewards: Some(rewards), failure_cause: cause, failure: Some(failure), ..none })
            }
            Err(failure) => {
                let cause = Some(failure.cause.name().to_owned());
                (0.0, Self { failure_cause: cause, failure: Some(failure.message), ..none })
            }
        }
    }
}

/// The reply to `GET /v1/envs/{id}`. The entries of `GET /v1/envs` have no `last`.
#[derive(Debug, Serialize)]
pub(super) struct EnvStatus {
    pub(super) env_id: String,
    pub(super) task_id: String,
    pub(super) environment: String,
    pub(super) status: &'static str,
    pub(super) lease_seconds: f64,
    /// The time until the environment is removed if there is no further call.
    pub(super) lease_left_seconds: f64,
    /// The answer to the latest step, for a caller that did not receive it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<StepReply>,
}

/// The reply to `POST /v1/envs/{id}/lease`.
#[derive(Debug, Serialize)]
pub(super) struct Leased {
    pub(super) env_id: String,
    pub(super) lease_seconds: f64,
}

/// The reply to `DELETE /v1/envs/{id}`.
#[derive(Debug, Serialize)]
pub(super) struct ClosedReply {
    pub(super) env_id: String,
    pub(super) status: &'static str,
}
