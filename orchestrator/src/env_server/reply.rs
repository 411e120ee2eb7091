//! What callers are told, as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::failure::TrialFailure;
use crate::verify::Rewards;

/// Of `POST /v1/envs`
#[derive(Debug, Serialize)]
pub(super) struct Created {
    pub(super) env_id: String,
    pub(super) task_id: String,
    /// As the task has it. The local environment has its own spelling of Harbor's places, which a reset tells.
    pub(super) instruction: String,
    pub(super) lease_seconds: f64,
    pub(super) status: &'static str,
}

/// Of `POST /v1/envs/{id}/reset`
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
    /// What the terminal agent would say to its model: the rules, the task and the observation.
    pub(super) prompt: String,
}

/// Of `POST /v1/envs/{id}/step`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct StepReply {
    pub(super) observation: String,
    /// 0 until the episode is done, and where `info.reward_valid` is false.
    pub(super) reward: f64,
    pub(super) done: bool,
    pub(super) info: StepInfo,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct StepInfo {
    /// Steps of this episode, this one among them.
    pub(super) step: u32,
    pub(super) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parse_error: Option<String>,
    /// The task was said to be complete, or the shell ended.
    pub(super) terminated: bool,
    /// The steps or the task's time were over.
    pub(super) truncated: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) terminal_closed: bool,
    #[serde(flatten)]
    pub(super) verdict: Option<Verdict>,
}

/// What the tests said, once the episode is done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    pub(super) reward_valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rewards: Option<BTreeMap<String, f64>>,
    /// Harbor's name of what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure_cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
}

/// The cause where the tests gave several numbers and none of them is `reward`. Ours: Harbor takes none for the one.
const NO_SINGLE_REWARD: &str = "NoSingleRewardError";

impl Verdict {
    /// With the one number that stands for it; 0 where there is none, which the verdict then says.
    pub(super) fn of(judged: Result<Rewards, TrialFailure>) -> (f64, Self) {
        let none = Self { reward_valid: false, rewards: None, failure_cause: None, failure: None };
        match judged {
            Ok(Rewards { rewards, reward: Some(reward) }) => {
                (reward, Self { reward_valid: true, rewards: Some(rewards), ..none })
            }
            Ok(Rewards { rewards, reward: None }) => {
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

/// Of `GET /v1/envs/{id}`, and without `last` of `GET /v1/envs`
#[derive(Debug, Serialize)]
pub(super) struct EnvStatus {
    pub(super) env_id: String,
    pub(super) task_id: String,
    pub(super) environment: String,
    pub(super) status: &'static str,
    pub(super) lease_seconds: f64,
    /// Until it is removed, if nobody calls from now on.
    pub(super) lease_left_seconds: f64,
    /// The latest step's answer, for whoever lost it on the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<StepReply>,
}

/// Of `POST /v1/envs/{id}/lease`
#[derive(Debug, Serialize)]
pub(super) struct Leased {
    pub(super) env_id: String,
    pub(super) lease_seconds: f64,
}

/// Of `DELETE /v1/envs/{id}`
#[derive(Debug, Serialize)]
pub(super) struct ClosedReply {
    pub(super) env_id: String,
    pub(super) status: &'static str,
}
