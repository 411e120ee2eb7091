//! The JSON types of the feed of complete trials, and of groups.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rolltap_rollout::export::pipeline::prepare::PreparedTrial;
use rolltap_rollout::ids::{GroupId, RewardVersion, TaskId, TrialId};
use rolltap_rollout::row::RolloutRow;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A complete trial with all its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutLine {
    /// The position of the reader after this line, for the parameter `after`. Opaque text.
    pub cursor: String,
    /// The name of the trial.
    pub trial_id: TrialId,
    /// The name of its task.
    pub task_id: TaskId,
    /// The name of its group.
    pub group_id: Option<GroupId>,
    /// The sample within the group, from 0.
    pub sample_index: u32,
    /// The attempt at the sample, from 0.
    pub attempt: u32,
    /// Whether a later attempt at the same sample counts instead.
    pub superseded: bool,
    /// The number of trials of its group that follow in this reading; 0 for the last. Present with `closed_groups` for
    /// trials with a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_remaining: Option<u64>,
    /// Whether it became complete only after its group had closed. Present with `closed_groups` for trials with a
    /// group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<bool>,
    /// The time at which it became complete.
    pub completed_at: Timestamp,
    /// The number to train on. Null (never 0) without a reward. It is repeated here because a trial without a sampled
    /// token has no rows.
    pub reward: Option<f64>,
    /// All numbers of the verifier, by name.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent.
    pub reward_valid: bool,
    /// The reason why the trial failed.
    pub failure_cause: Option<String>,
    /// The version of the reward. Absent for the reward of the trial itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_version: Option<RewardVersion>,
    /// The reasons for which the trial is suspected of cheating. Null if it was not examined.
    pub suspicious: Option<Vec<String>>,
    /// Its rows, as `GET /v1/trials/{id}/rollout` has them. Absent with `prepare`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<RolloutRow>>,
    /// With `prepare`: the trial after the rules of an export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<PreparedTrial>,
}

impl RolloutLine {
    /// Its rows as they are. Empty if the trial sampled nothing, and with `prepare`.
    pub fn rows(&self) -> &[RolloutRow] {
        self.rows.as_deref().unwrap_or_default()
    }
}

/// The status of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupStatus {
    /// The name of the group.
    pub group_id: GroupId,
    /// The number of samples in the complete group, if one of its trials gave it.
    pub size: Option<u32>,
    /// The numbers of its samples so far, each counted by its last attempt.
    pub samples: SampleCounts,
    /// The number of its trials, superseded attempts included.
    pub trials: u64,
    /// The time at which it closes at the latest. Null before its first trial is sealed, and without a deadline.
    pub deadline_at: Option<Timestamp>,
    /// The cause and time of its closing. Null while it is open.
    pub closed: Option<GroupClosing>,
}

/// The numbers of samples of a group, each counted by its last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleCounts {
    /// Samples whose trial is open.
    pub open: u64,
    /// Samples whose trial is sealed and waits for its reward.
    pub sealed: u64,
    /// Samples whose trial is sealed, and rewarded or past its reward deadline.
    pub complete: u64,
}

/// The cause and time of the closing of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupClosing {
    /// The cause.
    pub cause: ClosingCause,
    /// The time.
    pub at: Timestamp,
}

/// The cause of the closing of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClosingCause {
    /// `group_size` samples are complete.
    Size,
    /// A client closed it.
    Call,
    /// Its `group_deadline` passed.
    Deadline,
    /// A client dropped it: readers of closed groups do not get its trials.
    Dropped,
}

/// How to close a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloseGroup {
    /// Whether readers of closed groups do not get the trials of the group. Readers of all trials still get them.
    #[serde(default)]
    pub drop: bool,
}

impl ClosingCause {
    /// Returns the cause as a clause of an error message.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Size => "as many samples as its size are complete",
            Self::Call => "it was closed by call",
            Self::Deadline => "its deadline passed",
            Self::Dropped => "it was dropped by call",
        }
    }
}
