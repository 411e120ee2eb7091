//! Submissions: the groups that a trainer asks the service `rolltap serve` to sample.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, SubmissionId, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::common::seconds::Seconds;

/// Groups to sample. Exactly one of `task`, `task_path` and `dataset` is required.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    /// The name of a task that the service was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The absolute path of a task directory on the host of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_path: Option<PathBuf>,
    /// The name of a dataset that the service was started with. Each of its tasks becomes a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// The agent, as in the configuration of the service. If absent, the service must have only one agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The number of samples of each group. If absent, the setting of the service applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<NonZeroU32>,
    /// Overrides keys of every request of the trials. Keys that are absent here are those of the service.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub sampling: Map<String, Value>,
    /// Samples of a submission with a higher priority begin first. Equal priorities begin in the order of submission.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// The longest time from the submission to its end, in seconds. After it the running trials are stopped, and the
    /// groups close with the samples that they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Seconds>,
    /// Any object. The status of the submission and of each of its trials returns it unchanged.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Makes the request repeatable: a second submission with this key and equal fields is the first one. Other fields
    /// under the same key are a 409.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

/// The submissions to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelSubmissions {
    /// The policy version that was current when they were submitted.
    pub policy_version: i32,
}

/// The state of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubmissionState {
    /// No sample has begun.
    Queued,
    /// A sample has begun.
    Running,
    /// It was cancelled or its deadline passed, and its running trials are being stopped.
    Stopping,
    /// Each sample has ended.
    Done,
    /// It was cancelled. The groups are closed with the samples that had ended.
    Cancelled,
    /// Its deadline passed. The groups are closed with the samples that had ended.
    Expired,
    /// It cannot be sampled, because its tasks cannot be read any more. `error` has the reason.
    Failed,
}

impl SubmissionState {
    /// Whether no further sample begins or runs.
    pub fn has_ended(self) -> bool {
        !matches!(self, Self::Queued | Self::Running | Self::Stopping)
    }
}

/// A submission and its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Submission {
    /// The name of the submission. Names sort by the time of submission.
    pub id: SubmissionId,
    /// Its progress.
    pub state: SubmissionState,
    /// Why it failed. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// The policy version that was current then.
    pub policy_version: i32,
    /// When its first sample began. Null before.
    pub started_at: Option<Timestamp>,
    /// When it ended. Null before.
    pub ended_at: Option<Timestamp>,
    /// The request, as it was sent.
    pub request: Submit,
    /// Its groups, in the order of the tasks.
    pub groups: Vec<SubmittedGroup>,
}

/// A group of a submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmittedGroup {
    /// The name of the group, as in the feed and in rollouts.
    pub group_id: GroupId,
    /// The name of its task.
    pub task_id: TaskId,
    /// The number of its samples.
    pub samples: u32,
    /// The samples that have not begun, or wait for another attempt.
    pub queued: u32,
    /// The samples that run.
    pub running: u32,
    /// The samples that have ended.
    pub ended: u32,
    /// The samples that have ended with a failure that is not the agent's, by cause.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, u32>,
    /// When its first sample began. Null before.
    pub began_at: Option<Timestamp>,
    /// The time from the submission to `began_at`, in seconds. Null before.
    pub waited_sec: Option<f64>,
    /// The policy version that was current when its first sample began. Null before.
    pub began_at_version: Option<i32>,
    /// When the group closed. Null before: with a budget of staleness, a group may wait for its turn after its last
    /// sample has ended.
    pub closed_at: Option<Timestamp>,
    /// Why readers of closed groups do not get the group. Absent if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DropCause>,
}

/// Why a group is not given to readers of closed groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DropCause {
    /// All of its valid rewards are equal, so its advantages are zero.
    Uniform,
    /// The policy changed more often than the budget of staleness permits since its first sample began.
    TooOld,
    /// Its submission was cancelled, expired or failed before each of its samples had ended, in a service with a budget
    /// of staleness.
    Stopped,
    /// None of its samples became complete at the proxy.
    Empty,
}
