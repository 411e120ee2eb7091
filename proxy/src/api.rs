//! The JSON types of the admin plane's requests and answers. A client needs nothing else of this crate.
//!
//! The documentation of the types and their fields is the text of the OpenAPI document, so it addresses users of the
//! API.

mod feed;
mod opening_secret;
mod submissions;
mod upstreams;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

pub use feed::{CloseGroup, ClosingCause, GroupClosing, GroupStatus, RolloutLine, SampleCounts};
use jiff::Timestamp;
pub use opening_secret::{InvalidOpeningSecret, OpeningSecret};
use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{CallRole, Flaw};
use rolltap_rollout::ids::{CallId, GroupId, RewardVersion, TaskId, TrialId};
use rolltap_rollout::rollout::Reward;
use rolltap_rollout::training::Training;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use submissions::{CancelSubmissions, DropCause, Submission, SubmissionState, Submit, SubmittedGroup};
pub use upstreams::{
    AddUpstream, KvCacheStatus, Label, PauseMode, PausePolicy, PolicyStatus, PolicyVersion, SetPolicy,
    UpstreamState, UpstreamStatus,
};

use crate::common::history::History;
use crate::common::model_aliases::ModelAliases;
use crate::common::seconds::Seconds;

/// A trial to open. Only `task_id` is required.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenTrial {
    /// The name of the task.
    pub task_id: TaskId,
    /// The name of the trial. Generated if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_id: Option<TrialId>,
    /// Makes the request repeatable: a second request with this secret and this `trial_id` gets the same answer. It requires
    /// a `trial_id`. Whoever knows it knows the key of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<OpeningSecret>,
    /// The group: the samples that a trainer compares with each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_id: Option<GroupId>,
    /// The number of samples in the complete group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
    /// The sample within the group, from 0.
    #[serde(default)]
    pub sample_index: u32,
    /// The attempt at this sample, from 0.
    #[serde(default)]
    pub attempt: u32,
    /// The name of the agent, for the record and for statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model that the trial is meant to call, for the record. It counts for calls that name no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The environment of the agent (`docker`, `local`, …), for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Overrides keys of every request of the trial, vLLM's own keys included: `temperature`, `structured_outputs`, ….
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub sampling: serde_json::Map<String, serde_json::Value>,
    /// The `seed` of the first call. Each further call gets the next integer, so that equal prompts do not get equal
    /// samples. It overrides the seed of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Model names that the agent requests, each with the served model or LoRA adapter that answers. They have
    /// precedence over the aliases of the proxy. `{"*": "my-adapter"}` sends every call to `my-adapter`.
    #[serde(default, skip_serializing_if = "ModelAliases::is_empty")]
    pub model_aliases: ModelAliases,
    /// How the tokens of earlier turns are treated. If absent, the setting of the proxy applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// Whether calls of a role are trained, such as `{"title": "train"}`. For absent roles the setting of the proxy
    /// applies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub training: BTreeMap<CallRole, Training>,
    /// The limits of this trial. For absent limits those of the proxy apply.
    #[serde(default)]
    pub limits: Limits,
    /// The longest time from the seal to the reward, in seconds. If no reward arrives in time, the trial is complete
    /// without a reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_deadline: Option<Seconds>,
    /// The longest time from the first seal of a trial of the group to the close of the group, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_deadline: Option<Seconds>,
    /// Whether the group of the trial closes only by request or at its deadline, also if as many samples as its size are
    /// complete. The value of any trial of the group counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold_group: bool,
    /// Any object. The status of the trial returns it unchanged.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

impl OpenTrial {
    /// Returns a request for a trial of this task, without any optional field.
    pub fn of_task(task_id: TaskId) -> Self {
        Self {
            task_id,
            trial_id: None,
            idempotency_key: None,
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
            hold_group: false,
            metadata: serde_json::Map::new(),
        }
    }
}

/// The limits of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The number of calls, including requests that are answered 400. Further calls are answered 429.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// The number of sampled tokens. Once it is reached, further calls are answered 429.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u64>,
    /// The number of calls in flight. Calls beyond it are answered 429, with `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls_in_flight: Option<u64>,
    /// The number of calls per minute on average, and at once after a pause. Calls beyond it are answered 429, with
    /// `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls_per_minute: Option<NonZeroU32>,
    /// The size of a request body in bytes. Larger bodies are answered 413.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u64>,
}

impl Limits {
    /// Returns these limits, completed by `others` for absent ones.
    pub fn or(self, others: Self) -> Self {
        Self {
            max_calls: self.max_calls.or(others.max_calls),
            max_completion_tokens: self.max_completion_tokens.or(others.max_completion_tokens),
            max_calls_in_flight: self.max_calls_in_flight.or(others.max_calls_in_flight),
            max_calls_per_minute: self.max_calls_per_minute.or(others.max_calls_per_minute),
            max_body_bytes: self.max_body_bytes.or(others.max_body_bytes),
        }
    }
}

/// An opened trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialOpened {
    /// The name of the trial.
    pub trial_id: TrialId,
    /// The key that identifies the calls of its agent. It is a secret, and only this answer contains it.
    pub key: String,
    /// The base URLs of the agent plane with the key in the path.
    pub base_urls: BaseUrls,
}

/// The URL of the agent plane in the form that each family of clients expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BaseUrls {
    /// For OpenAI clients: ends in `/v1`.
    pub openai: String,
    /// For Anthropic clients: without `/v1`.
    pub anthropic: String,
    /// For Gemini clients: without a version.
    pub gemini: String,
}

/// The reward of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutReward {
    /// All numbers of the verifier, by name.
    #[serde(default)]
    pub rewards: BTreeMap<String, f64>,
    /// The number to train on. If absent, it is `rewards.reward`, else the only entry of `rewards`, else null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// Whether the reward measures the agent. If absent, it is true if there is a reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    /// The reason why the trial failed, such as the name of Harbor's exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_cause: Option<String>,
    /// The version of a later verification of a complete trial, such as `regrade-1`. The version gets this reward, and
    /// the reward of the trial itself does not change. If absent, the reward is that of the trial itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<RewardVersion>,
    /// The reasons for which the trial is suspected of cheating, for the rows. Empty if nothing was found, and absent if
    /// the trial was not examined. They do not change the reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspicious: Option<Vec<String>>,
}

/// The reward of a later verification of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RewardOfVersion {
    /// The number to train on. Null without a reward.
    pub reward: Option<f64>,
    /// All numbers of the verifier, by name.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent.
    pub valid: bool,
    /// The reason why there is no reward, or why the trial failed.
    pub failure_cause: Option<String>,
}

impl From<Reward> for RewardOfVersion {
    fn from(Reward { reward, rewards, valid, failure_cause, .. }: Reward) -> Self {
        Self { reward, rewards, valid, failure_cause }
    }
}

/// The status of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialStatus {
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
    /// The name of its agent, as given when it was opened.
    pub agent: Option<String>,
    /// Whether it still accepts calls.
    pub state: TrialState,
    /// The numbers of its calls.
    pub calls: CallCounts,
    /// The prompt tokens of all calls.
    pub prompt_tokens: u64,
    /// The sampled tokens of all calls.
    pub completion_tokens: u64,
    /// The number of complete calls whose record lacks something, by flaw. Such calls are trained in part or not at
    /// all.
    #[serde(default)]
    pub flaws: BTreeMap<Flaw, u64>,
    /// The number of branches that its calls form so far.
    pub branches: u64,
    /// The causes of the branches, each with its cost.
    pub branch_causes: BTreeMap<BranchCause, Cost>,
    /// The number to train on. Null without a reward.
    pub reward: Option<f64>,
    /// All numbers of the verifier, by name.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent. Null without a reward.
    pub reward_valid: Option<bool>,
    /// The reason why the trial failed.
    pub failure_cause: Option<String>,
    /// The rewards of later verifications, by version. Absent without one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reward_versions: BTreeMap<RewardVersion, RewardOfVersion>,
    /// The reasons for which the trial is suspected of cheating. Null if it was not examined.
    pub suspicious: Option<Vec<String>>,
    /// The time of its opening.
    pub opened_at: Timestamp,
    /// The time of its seal. Null while it is open.
    pub sealed_at: Option<Timestamp>,
    /// The time at which it became complete: sealed, and rewarded or past its reward deadline. Null before.
    pub completed_at: Option<Timestamp>,
    /// Whether a later attempt at the same sample counts instead.
    pub superseded: bool,
    /// The metadata that was given when it was opened.
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// A captured answer as a message: one line of `GET /v1/trials/{id}/answers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapturedAnswer {
    /// The call.
    pub call_id: CallId,
    /// The index of its choice.
    pub choice_index: u32,
    /// The message in the form of chat completions (`role`, `content`, `tool_calls`), whatever the dialect of the agent.
    pub message: serde_json::Value,
}

/// The cost of branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// The number of branches.
    pub branches: u64,
    /// The tokens in the prompts of their first calls that extend no earlier sequence of the trial.
    pub tokens: u64,
}

impl Cost {
    /// Adds the cost of other branches.
    pub fn add(&mut self, other: Self) {
        self.branches += other.branches;
        self.tokens += other.tokens;
    }
}

/// How often branches started for one cause, in all trials of one agent with one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CauseFigures {
    /// The agent as named when the trials were opened.
    pub agent: Option<String>,
    /// The model as the agent named it.
    pub model: String,
    /// The cause of the branches.
    pub cause: BranchCause,
    /// The number of branches and their cost.
    #[serde(flatten)]
    pub cost: Cost,
    /// The number of trials with such branches.
    pub trials: u64,
}

/// Whether a trial still accepts calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// It accepts calls.
    Open,
    /// It never accepts a call again.
    Sealed,
}

/// The numbers of calls of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallCounts {
    /// Calls that ended.
    pub total: u64,
    /// Calls with a complete answer.
    pub complete: u64,
    /// Calls that were answered with an error, were interrupted, or were cancelled.
    pub failed: u64,
    /// Calls in flight.
    pub in_flight: u64,
}

impl TrialStatus {
    /// Returns a lower bound of the number of complete calls without any trainable token.
    #[must_use]
    pub fn empty_calls(&self) -> u64 {
        // One call may have several of these flaws, so their numbers cannot be added up.
        let lost = [Flaw::MissingPromptIds, Flaw::MissingTokenIds, Flaw::MissingLogprobs];
        lost.iter().filter_map(|flaw| self.flaws.get(flaw)).copied().max().unwrap_or_default()
    }
}

/// The body of every error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// The description of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDetail {
    /// The problem, its place, and the remedy.
    pub message: String,
    /// The kind of the error: `invalid_request`, `unauthorized`, `forbidden`, `not_found`, `conflict`, `gone`,
    /// `unavailable` or `internal`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status.
    pub code: u16,
}
