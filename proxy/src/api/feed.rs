//! Groups, and the feed of complete trials.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rolltap_rollout::export::pipeline::prepare::PreparedTrial;
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use rolltap_rollout::row::RolloutRow;
use serde::{Deserialize, Serialize};

/// A line of `GET /v1/rollouts`: one complete trial, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutLine {
    /// Where the reader stands once it has this line: what `after` takes. Text without a meaning of its own.
    pub cursor: String,
    /// The trial.
    pub trial_id: TrialId,
    /// Its task.
    pub task_id: TaskId,
    /// Its group.
    pub group_id: Option<GroupId>,
    /// Which sample of the group.
    pub sample_index: u32,
    /// Which try at the sample.
    pub attempt: u32,
    /// A later attempt at the same sample counts instead.
    pub superseded: bool,
    /// With `closed_groups`, and of a trial with a group: how many trials of its group follow in this reading. 0 is the
    /// last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_remaining: Option<u64>,
    /// With `closed_groups`, and of a trial with a group: it was complete only after its group had closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<bool>,
    /// When it was complete.
    pub completed_at: Timestamp,
    /// The one number to train on; none (never 0) where there is none. Here too, because a trial without a sampled token
    /// has no rows.
    pub reward: Option<f64>,
    /// Every number that the verifier gave, by name.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent.
    pub reward_valid: bool,
    /// Why the trial failed.
    pub failure_cause: Option<String>,
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

/// `GET /v1/groups/{id}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The group.
    pub group_id: GroupId,
    /// How many samples it has when whole, if one of its trials said so.
    pub size: Option<u32>,
    /// Its samples so far, by how their last attempts stand.
    pub samples: SampleCounts,
    /// Its trials, superseded attempts included.
    pub trials: u64,
    /// When it closes at the latest; none before its first trial is sealed, or where none says.
    pub deadline_at: Option<Timestamp>,
    /// That it is closed, and why.
    pub closed: Option<GroupClosing>,
}

/// A group's samples by how their last attempts stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleCounts {
    /// The agent is at work.
    pub open: u64,
    /// The agent's time is over, and the reward has not come.
    pub sealed: u64,
    /// Sealed, and the reward has come or will not.
    pub complete: u64,
}

/// Why and when a group closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupClosing {
    /// Why.
    pub cause: ClosingCause,
    /// When.
    pub at: Timestamp,
}

/// Why a group closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosingCause {
    /// As many samples as its size are complete.
    Size,
    /// `POST /v1/groups/{id}/close`.
    Call,
    /// Its `group_deadline` passed.
    Deadline,
}

impl ClosingCause {
    /// For errors: a clause.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Size => "as many samples as its size are complete",
            Self::Call => "it was closed by call",
            Self::Deadline => "its deadline passed",
        }
    }
}
