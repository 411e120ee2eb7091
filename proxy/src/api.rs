//! The admin plane's contract: what it takes and gives, as JSON. A client of it needs nothing else of this crate.

mod feed;
mod upstreams;

use std::collections::BTreeMap;

pub use feed::{ClosingCause, GroupClosing, GroupStatus, RolloutLine, SampleCounts};
use jiff::Timestamp;
use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{CallRole, Flaw};
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use rolltap_rollout::training::Training;
use serde::{Deserialize, Serialize};
pub use upstreams::{
    AddUpstream, Label, PauseMode, PausePolicy, PolicyStatus, PolicyVersion, SetPolicy, UpstreamState,
    UpstreamStatus,
};

use crate::common::history::History;
use crate::common::model_aliases::ModelAliases;
use crate::common::seconds::Seconds;

/// `POST /v1/trials`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenTrial {
    /// Harbor's task name.
    pub task_id: TaskId,
    /// The trial's name; made up where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_id: Option<TrialId>,
    /// The samples that a trainer compares with this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_id: Option<GroupId>,
    /// How many samples the group has when whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
    /// Which sample of its group, from 0.
    #[serde(default)]
    pub sample_index: u32,
    /// Which try at this sample, from 0.
    #[serde(default)]
    pub attempt: u32,
    /// The agent's name, for the record and to sum up by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model that the trial is meant to call, for the record where no call names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where the agent works (`docker`, `local`, …), for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Keys laid over every request of the trial, vLLM's own extras included: `temperature`, `structured_outputs`, ….
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub sampling: serde_json::Map<String, serde_json::Value>,
    /// The first call is sampled with this `seed`, each further one with the next. Laid over the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Model names that the agent says, each with the served model or LoRA adapter that it gets; before those of the
    /// proxy. `{"*": "my-adapter"}` makes every call one of `my-adapter`.
    #[serde(default, skip_serializing_if = "ModelAliases::is_empty")]
    pub model_aliases: ModelAliases,
    /// What becomes of earlier turns' tokens: `faithful`, `sampled` or `off`. Absent: as the proxy is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// Whether calls of a role are trained on, where the trial wants it otherwise than the proxy: `{"title": "train"}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub training: BTreeMap<CallRole, Training>,
    /// Bounds on what the trial may use.
    #[serde(default)]
    pub limits: Limits,
    /// How long after the seal a reward is waited for, at most. Without one the trial is complete then, with no reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_deadline: Option<Seconds>,
    /// How long after the first seal of its trials the group closes, at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_deadline: Option<Seconds>,
    /// Kept as given and handed back.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

impl OpenTrial {
    /// A trial of that task, all else left out.
    pub fn of_task(task_id: TaskId) -> Self {
        Self {
            task_id,
            trial_id: None,
            group_id: None,
            group_size: None,
            sample_index: 0,
            attempt: 0,
            agent: None,
            model: None,
            environment: None,
            sampling: serde_json::Map::new(),
            seed: None,
            model_aliases: ModelAliases::default(),
            history: None,
            training: BTreeMap::new(),
            limits: Limits::default(),
            reward_deadline: None,
            group_deadline: None,
            metadata: serde_json::Map::new(),
        }
    }
}

/// Bounds on what a trial may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Calls beyond this many are answered 429.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Once this many tokens are sampled, further calls are answered 429.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u64>,
    /// Calls beyond this many at once are answered 429, with `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls_in_flight: Option<u64>,
    /// Larger request bodies are answered 413.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u64>,
}

impl Limits {
    /// These, and `others` where these say nothing.
    pub fn or(self, others: Self) -> Self {
        Self {
            max_calls: self.max_calls.or(others.max_calls),
            max_completion_tokens: self.max_completion_tokens.or(others.max_completion_tokens),
            max_calls_in_flight: self.max_calls_in_flight.or(others.max_calls_in_flight),
            max_body_bytes: self.max_body_bytes.or(others.max_body_bytes),
        }
    }
}

/// The answer to `POST /v1/trials`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialOpened {
    /// The trial's name.
    pub trial_id: TrialId,
    /// The secret that its agent calls with.
    pub key: String,
    /// Where its agent calls, the key in the path; per family of clients.
    pub base_urls: BaseUrls,
}

/// The same agent plane as each family of clients wants it written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseUrls {
    /// Ends in `/v1`.
    pub openai: String,
    /// Without `/v1`.
    pub anthropic: String,
    /// Without a version.
    pub gemini: String,
}

/// `PUT /v1/trials/{id}/reward`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutReward {
    /// Every number that the verifier gave, by name.
    #[serde(default)]
    pub rewards: BTreeMap<String, f64>,
    /// The one number to train on. Absent: `rewards.reward`, or the only entry of `rewards`, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// Whether the reward measures the agent. Absent: true if there is a reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    /// Why the trial failed, in Harbor's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_cause: Option<String>,
}

/// `GET /v1/trials/{id}`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialStatus {
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
    /// Its agent's name, if the opener gave one.
    pub agent: Option<String>,
    /// Whether it still takes calls.
    pub state: TrialState,
    /// How many calls it made, by how they ended.
    pub calls: CallCounts,
    /// Prompt tokens of all calls together.
    pub prompt_tokens: u64,
    /// Sampled tokens of all calls together.
    pub completion_tokens: u64,
    /// Complete calls whose record lacks something, so that nothing or not all of them can be trained, by what it lacks.
    #[serde(default)]
    pub flaws: BTreeMap<Flaw, u64>,
    /// How many branches its calls form so far.
    pub branches: u64,
    /// Why they started, and what each cause cost.
    pub branch_causes: BTreeMap<BranchCause, Cost>,
    /// The one number to train on, once the reward has come.
    pub reward: Option<f64>,
    /// Every number that the verifier gave.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent; none before it has come.
    pub reward_valid: Option<bool>,
    /// Why the trial failed.
    pub failure_cause: Option<String>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it was sealed.
    pub sealed_at: Option<Timestamp>,
    /// When it was complete: sealed, and its reward there or given up.
    pub completed_at: Option<Timestamp>,
    /// A later attempt at the same sample counts instead.
    pub superseded: bool,
    /// As given when it was opened.
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// How many branches started, and what that cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Branches.
    pub branches: u64,
    /// Tokens of their first calls' prompts that no earlier sequence of their trial began with.
    pub tokens: u64,
}

impl Cost {
    /// Adds what others cost.
    pub fn add(&mut self, other: Self) {
        self.branches += other.branches;
        self.tokens += other.tokens;
    }
}

/// A line of `GET /v1/causes`: why branches started in all trials of an agent with a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseFigures {
    /// As the trials' openers named it.
    pub agent: Option<String>,
    /// As the agent named it.
    pub model: String,
    /// Why the branches started.
    pub cause: BranchCause,
    /// How many did, and what that cost.
    #[serde(flatten)]
    pub cost: Cost,
    /// In how many trials.
    pub trials: u64,
}

/// Whether a trial still takes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// It does.
    Open,
    /// Never again.
    Sealed,
}

/// A trial's calls by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    /// All that ended.
    pub total: u64,
    /// Answered whole.
    pub complete: u64,
    /// Answered an error, broken off, or cancelled.
    pub failed: u64,
    /// Under way now.
    pub in_flight: u64,
}

impl TrialStatus {
    /// Complete calls of which nothing can be trained: at least as many as these.
    #[must_use]
    pub fn empty_calls(&self) -> u64 {
        let lost = [Flaw::MissingPromptIds, Flaw::MissingTokenIds, Flaw::MissingLogprobs];
        lost.iter().filter_map(|flaw| self.flaws.get(flaw)).copied().max().unwrap_or_default()
    }
}

/// Every error of the admin plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// What was wrong, where, and what to do.
    pub message: String,
    /// A fixed word per kind of error: `invalid_request`, `not_found`, `conflict`, `unauthorized`, ….
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status.
    pub code: u16,
}
