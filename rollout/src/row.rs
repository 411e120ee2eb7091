//! `rollout/1`: one row per branch. This is the exchange format of rollouts, as Parquet and as JSONL with the same
//! names.
//!
//! The fields are plain numbers and lists, so a row from a file may be invalid. [`crate::check`] reports its defects.
//! New fields may be added. No field is ever renamed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The value of [`RolloutRow::schema_version`].
pub const SCHEMA_VERSION: &str = "rollout/1";

/// One branch of a sealed trial with the trial's reward.
///
/// All per-token lists have the length of `token_ids`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutRow {
    /// [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: String,
    /// The trial of this branch.
    pub trial_id: String,
    /// The group of samples that a trainer compares.
    pub group_id: Option<String>,
    /// The number of samples in the complete group.
    pub group_size: Option<i32>,
    /// The index of the sample in its group, from 0.
    pub sample_index: i32,
    /// The number of the attempt at this sample, from 0. A retry is a separate trial.
    pub attempt: i32,
    /// Whether a later attempt at the same sample counts instead.
    pub superseded: bool,
    /// Harbor's task name.
    pub task_id: String,
    /// The environment in which the agent worked: `docker`, `local`, …. `None` if the opener did not name it.
    pub environment: Option<String>,
    /// The index of the branch within the trial, from 0, in order of the branches' first calls.
    pub branch_index: i32,
    /// The number of branches of the trial.
    pub num_branches: i32,
    /// Whether this is the last branch of the trial.
    pub is_last_branch: bool,
    /// Why the branch started: see [`crate::branch_cause::BranchCause`].
    pub branch_cause: String,
    /// The cost of the branch: the tokens of its first call's prompt that no earlier sequence of the trial begins with.
    /// `None` in files of rolltap versions without this count.
    pub branch_reprefilled: Option<i32>,
    /// The prompt and sampled tokens of the branch, from first to last.
    pub token_ids: Vec<i32>,
    /// 1 if the policy sampled this token in this trial.
    pub sampled_mask: Vec<u8>,
    /// 1 if the token was sampled with a finite logprob, in a complete call with a trained role and an unambiguous
    /// parent.
    pub trainable_mask: Vec<u8>,
    /// 1 if the token is trainable and this branch owns it. Among branches that share a token, the lowest index owns
    /// it.
    pub loss_mask: Vec<u8>,
    /// The captured logprobs in nats. 0.0 for tokens that were not sampled or have no captured logprob.
    pub logprobs: Vec<f32>,
    /// The policy version that sampled the token, or −1 if it was not sampled.
    pub token_version: Vec<i32>,
    /// The names that the trainer or the upstream gives to the versions in `token_version`, by version.
    pub version_labels: BTreeMap<String, String>,
    /// The index of the first sampled token.
    pub prompt_len: i32,
    /// The verifier's reward. `None` (never 0) if there is no reward.
    pub reward: Option<f64>,
    /// The trial's advantage within its group, the same for each of its branches. `None` unless an export with
    /// advantages wrote the row.
    pub advantage: Option<f64>,
    /// Every number that the verifier gave, by name.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent: false if something else failed.
    pub reward_valid: bool,
    /// Why the trial failed, in Harbor's terms.
    pub failure_cause: Option<String>,
    /// The version of the reward, if a later verification gave it. `None` for the reward of the trial itself.
    pub reward_version: Option<String>,
    /// The reasons for which the trial is suspected of cheating, each once, in alphabetical order. Empty if nothing was
    /// found. `None` if the trial was not examined, and in files of rolltap versions before this field.
    pub suspicious: Option<Vec<String>>,
    /// Whether the last answer of the branch was cut off, by the length limit or otherwise.
    pub is_truncated: bool,
    /// The finish reason of the branch's last call.
    pub stop_reason: Option<String>,
    /// `completed`, `truncated`, `aborted` or `failed`: see [`crate::rollout`].
    pub status: String,
    /// The model as the agent named it.
    pub model: String,
    /// The hash of the tokenizer, if known.
    pub tokenizer_hash: Option<String>,
    /// The exclusive upper bound of the ids of the model's vocabulary, if known.
    pub vocab_size: Option<i32>,
    /// vLLM's `--logprobs-mode`: `raw_logprobs` (before temperature and penalties) or `processed_logprobs`.
    pub logprobs_mode: String,
    /// Whether a call of the branch contained images, audio or video.
    pub has_media: bool,
    /// Which side recorded the tokens: see [`crate::origin::Origin`]. `None` in files of rolltap versions before
    /// agent-reported tokens, and then it means `captured`.
    pub origin: Option<String>,
    /// The calls along the branch, in order. Their spans cover the sampled tokens exactly.
    pub calls: Vec<CallSpan>,
}

/// The position of one call's sampled tokens in its branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallSpan {
    /// The call.
    pub call_id: String,
    /// The index of the call's choice.
    pub choice_index: i32,
    /// The call whose prompt and answer this call's prompt begins with.
    pub parent_call_id: Option<String>,
    /// The purpose of the call.
    pub role: String,
    /// The model or adapter that sampled the tokens: the name in the answer, or else the name in the request. `None` if
    /// neither named a model, and in files of rolltap versions before this field.
    pub model: Option<String>,
    /// The number of tokens of the call's prompt. The branch up to here equals the prompt that vLLM reported.
    pub prompt_len: i32,
    /// The index of the first sampled token.
    pub start: i32,
    /// One past the index of the last sampled token.
    pub end: i32,
    /// vLLM's finish reason.
    pub finish_reason: Option<String>,
    /// The policy version that sampled the first token. `token_version` has the version of each token.
    pub version: i32,
    /// When the answer was complete.
    pub sampled_at: Timestamp,
    /// The divisor of the logits. `None` if unknown.
    pub temperature: Option<f64>,
    /// The nucleus size. `None` if unknown.
    pub top_p: Option<f64>,
    /// The number of candidates. `None` if unknown.
    pub top_k: Option<i64>,
    /// Whether the recorded logprob differs from that of the distribution that was sampled from.
    pub constrained: bool,
    /// Every sampling key of the request: a JSON object as text.
    pub sampling: String,
    /// The messages of the request and, last, the answer of this choice: a JSON array as text, in the form of chat
    /// completions for every dialect. `None` if the row was made without messages, or if they were not recorded.
    pub messages: Option<String>,
    /// The tools that the request offers: a JSON array as text, in the same form. `None` if the request offers none, if
    /// `messages` is `None`, and in files of rolltap versions before this field.
    pub tools: Option<String>,
}

impl CallSpan {
    /// Returns the parameters other than the temperature that shaped the call's distribution, by vLLM's names.
    pub(crate) fn shaped_by(&self) -> impl Iterator<Item = &'static str> {
        let asked: Map<String, Value> = serde_json::from_str(&self.sampling).unwrap_or_default();
        // `off` is the value that disables the parameter in vLLM.
        let is_other = |name: &str, off: f64| {
            let value = asked.get(name).and_then(Value::as_f64);
            value.is_some_and(|value| value != off)
        };
        [
            ("top_p", self.top_p.is_some_and(|top_p| top_p < 1.0)),
            ("top_k", self.top_k.is_some_and(|top_k| top_k > 0)),
            ("min_p", is_other("min_p", 0.0)),
            ("presence_penalty", is_other("presence_penalty", 0.0)),
            ("frequency_penalty", is_other("frequency_penalty", 0.0)),
            ("repetition_penalty", is_other("repetition_penalty", 1.0)),
        ]
        .into_iter()
        .filter_map(|(name, shaped)| shaped.then_some(name))
    }
}
