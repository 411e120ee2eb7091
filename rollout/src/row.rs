//! `rollout/1`: one row per branch, the form in which rollouts leave rolltap (Parquet, and JSONL with the same names).
//!
//! The fields are the exchange format: plain numbers and lists, so that a row read from a file can be wrong and be
//! told so by [`crate::check`]. Extend it, never rename.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of [`RolloutRow::schema_version`].
pub const SCHEMA_VERSION: &str = "rollout/1";

/// One branch of a sealed trial with the trial's reward.
///
/// All per-token lists have the length of `token_ids`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutRow {
    /// [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// The trial that this branch is of.
    pub trial_id: String,
    /// The samples that a trainer compares with this one.
    pub group_id: Option<String>,
    /// How many samples the group has when whole.
    pub group_size: Option<i32>,
    /// Which sample of its group, from 0.
    pub sample_index: i32,
    /// Which try at this sample, from 0; a retry is a trial of its own.
    pub attempt: i32,
    /// A later attempt at the same sample counts instead.
    pub superseded: bool,
    /// Harbor's task name.
    pub task_id: String,
    /// Where the agent worked: `docker`, `local`, …; none if the opener did not say.
    pub environment: Option<String>,
    /// This branch among the trial's, from 0, in order of their first calls.
    pub branch_index: i32,
    /// How many branches the trial has.
    pub num_branches: i32,
    /// Whether no branch of the trial comes after this one.
    pub is_last_branch: bool,
    /// Why the branch started: see [`crate::branch_cause::BranchCause`].
    pub branch_cause: String,
    /// What starting it cost: tokens of its first call's prompt that no earlier sequence of the trial began with. None
    /// in files of rolltap before it was counted.
    pub branch_reprefilled: Option<i32>,
    /// Prompt and sampled tokens from the first to the last of the branch.
    pub token_ids: Vec<i32>,
    /// 1 where the policy sampled this token in this trial.
    pub sampled_mask: Vec<u8>,
    /// 1 where sampled, with a finite logprob, in a complete call, of a role that is trained, of unambiguous parentage.
    pub trainable_mask: Vec<u8>,
    /// 1 where trainable and owned by this branch: of branches that share a token the lowest index owns it.
    pub loss_mask: Vec<u8>,
    /// Nats, as captured where sampled; 0.0 elsewhere and where none was captured.
    pub logprobs: Vec<f32>,
    /// The policy version that sampled the token; −1 where it was not sampled.
    pub token_version: Vec<i32>,
    /// The trainer's or upstream's own names of the versions in `token_version`, by version.
    pub version_labels: BTreeMap<String, String>,
    /// Index of the first sampled token.
    pub prompt_len: i32,
    /// The verifier's reward; none (never 0) where there is none.
    pub reward: Option<f64>,
    /// The trial's advantage within its group, the same for each of its branches; none where nobody weighed trials
    /// against each other, as in all rows but those of an export that was asked to.
    pub advantage: Option<f64>,
    /// Every number that the verifier gave, by name.
    pub rewards: BTreeMap<String, f64>,
    /// Whether the reward measures the agent: false where something else failed.
    pub reward_valid: bool,
    /// Why the trial failed, in Harbor's words.
    pub failure_cause: Option<String>,
    /// The branch's last answer was cut off, by length or otherwise.
    pub is_truncated: bool,
    /// The finish reason of the branch's last call.
    pub stop_reason: Option<String>,
    /// `completed`, `truncated`, `aborted` or `failed`: see [`crate::rollout`].
    pub status: String,
    /// The model as the agent named it.
    pub model: String,
    /// Hash of the tokenizer, where it is known.
    pub tokenizer_hash: Option<String>,
    /// Ids of the model's vocabulary lie below this, where it is known.
    pub vocab_size: Option<i32>,
    /// vLLM's `--logprobs-mode`: `raw_logprobs` (before temperature and penalties) or `processed_logprobs`.
    pub logprobs_mode: String,
    /// Some call of the branch held images, audio or video.
    pub has_media: bool,
    /// Who kept the tokens: see [`crate::origin::Origin`]. None in files of rolltap before agents could hand tokens back,
    /// which means `captured`.
    pub origin: Option<String>,
    /// The calls along the branch, in order; their spans cover the sampled tokens exactly.
    pub calls: Vec<CallSpan>,
}

/// Where one call's sampled tokens stand in its branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallSpan {
    /// The call.
    pub call_id: String,
    /// Which of the call's choices, where it was asked for several.
    pub choice_index: i32,
    /// The call whose prompt and answer this one's prompt begins with.
    pub parent_call_id: Option<String>,
    /// What the call was for.
    pub role: String,
    /// The model or adapter that sampled, as the answer named it; where the answer named none, as the agent did. None where
    /// neither did, and in files of rolltap before calls named it.
    pub model: Option<String>,
    /// Tokens of the call's prompt; the branch up to here equals the prompt that vLLM reported.
    pub prompt_len: i32,
    /// First sampled token.
    pub start: i32,
    /// One past the last sampled token.
    pub end: i32,
    /// vLLM's finish reason.
    pub finish_reason: Option<String>,
    /// The policy version that sampled its first token; `token_version` has that of each.
    pub version: i32,
    /// When the answer was whole.
    pub sampled_at: Timestamp,
    /// Divisor of the logits; none if unknown.
    pub temperature: Option<f64>,
    /// Nucleus size; none if unknown.
    pub top_p: Option<f64>,
    /// Number of candidates; none if unknown.
    pub top_k: Option<i64>,
    /// The recorded logprob is not that of the distribution sampled from.
    pub constrained: bool,
    /// Every sampling key of the request, a JSON object as text.
    pub sampling: String,
    /// The request's messages, JSON as text; none where they were not kept.
    pub messages: Option<String>,
}
