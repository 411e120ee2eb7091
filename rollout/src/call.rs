//! One model request of an agent and its answer, as captured. Never completed by guessing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::continuation::Continuation;
use crate::ids::{CallId, TrialId};
use crate::origin::Origin;
use crate::token::{Logprob, TokenId};
use crate::token_list::TokenList;

/// A captured call: one line of `GET /v1/trials/{id}/calls`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Call {
    /// The call's name; names sort by the time at which the calls came in.
    pub call_id: CallId,
    /// The trial whose key the agent used.
    pub trial_id: TrialId,
    /// The wire format that the agent spoke.
    pub dialect: Dialect,
    /// The model as the agent named it.
    pub model: String,
    /// The model as its answer names it, where that is another name: agents know it by an alias, or leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_model: Option<String>,
    /// How the call ended.
    pub status: CallStatus,
    /// What a rule said that the call was for. [`crate::roles`] has the last word.
    pub role: CallRole,
    /// What its messages continue; none where nobody looked (`history` is `off`, no messages).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Continuation>,
    /// The prompt that vLLM reported for this call (`prompt_token_ids`). Empty where it reported none.
    pub prompt_token_ids: TokenList,
    /// The sampled answers, by `index`; `n` of them in a complete call.
    pub choices: Vec<Choice>,
    /// How the tokens were sampled.
    pub sampling: Sampling,
    /// The weights that upstream had when the call was sent there, an ordinal of ours. They sampled every token but
    /// those that [`Choice::versions`] says otherwise of.
    pub policy_version: i32,
    /// The weights changed before the answer was whole. Where the answer came as a stream, [`Choice::versions`] says
    /// from which token on; where it came whole nobody can tell, and its tokens bear the older version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub straddles_versions: bool,
    /// The trainer's or upstream's own names of the versions that the tokens bear, for those that have a name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub version_labels: BTreeMap<i32, String>,
    /// The replica that answered, by its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The messages held images, audio or video, so `prompt_token_ids` holds placeholders for them.
    pub has_media: bool,
    /// What makes this record less than complete; empty for a call that can be trained on.
    pub flaws: Vec<Flaw>,
    /// The HTTP status that upstream answered, if it answered.
    pub http_status: Option<u16>,
    /// What went wrong, in words.
    pub error: Option<String>,
    /// When the request was received.
    pub started_at: Timestamp,
    /// When the first sampled token was received; with all others, where the answer came whole.
    pub first_token_at: Option<Timestamp>,
    /// When the last of the answer was received.
    pub ended_at: Timestamp,
}

/// One sampled answer of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// vLLM's `choices[].index`.
    pub index: u32,
    /// The sampled tokens, stop tokens and those of stop strings included (`choices[].token_ids`).
    pub token_ids: Vec<TokenId>,
    /// As long as `token_ids` in a sound record; `None` where vLLM gave no usable number.
    pub logprobs: Vec<Option<Logprob>>,
    /// `stop`, `length`, `tool_calls`, `abort`, …; none if the answer broke off.
    pub finish_reason: Option<String>,
    /// vLLM's `stop_reason`: the stop string or stop token id that ended the answer.
    pub stop_reason: Option<serde_json::Value>,
    /// Where the weights changed while the tokens came, in order; empty where one version sampled them all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionSpan>,
}

/// From which token on other weights sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionSpan {
    /// Index of the first such token in [`Choice::token_ids`], as it came in: those that were on their way from
    /// upstream when the change was told count to it.
    pub start: u32,
    /// The version, up to the next span or the end.
    pub version: i32,
}

/// The wire format that an agent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/responses` (OpenAI)
    Responses,
    /// `POST /v1/messages` (Anthropic)
    Messages,
    /// `POST /v1beta/models/{model}:generateContent` (Gemini)
    GenerateContent,
    /// None that was seen: the agent handed the call's tokens back itself ([`crate::agent_reported`]).
    Returned,
}

impl Dialect {
    /// Who kept the tokens of calls in this dialect.
    pub fn origin(self) -> Origin {
        match self {
            Self::ChatCompletions
            | Self::Completions
            | Self::Responses
            | Self::Messages
            | Self::GenerateContent => Origin::Captured,
            Self::Returned => Origin::Agent,
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// The whole answer came, and the agent was handed it.
    Complete,
    /// Upstream answered an error, could not be reached, or broke off; or the agent was answered an error instead of a whole
    /// answer.
    Failed,
    /// The agent left, or the trial was sealed, before the answer was whole.
    Cancelled,
    /// The proxy ended while the call was under way.
    Interrupted,
}

/// What a call was for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CallRole {
    /// The agent's own work on its task, as far as nothing says otherwise.
    #[default]
    Main,
    /// Work that the agent gave to another conversation, with instructions of its own.
    SubAgent,
    /// Its answer is a summary that takes the place of the conversation so far.
    Compaction,
    /// Names a conversation, for people to read.
    Title,
    /// Asks for next to nothing, to see whether it would be answered.
    Probe,
}

impl Call {
    /// A call of which nothing is known but that it came in.
    pub fn begun(call_id: CallId, trial_id: TrialId, policy_version: i32, started_at: Timestamp) -> Self {
        Self {
            call_id,
            trial_id,
            dialect: Dialect::ChatCompletions,
            model: String::new(),
            served_model: None,
            status: CallStatus::Cancelled,
            role: CallRole::Main,
            continuation: None,
            prompt_token_ids: TokenList::new(),
            choices: Vec::new(),
            sampling: Sampling::default(),
            policy_version,
            straddles_versions: false,
            version_labels: BTreeMap::new(),
            upstream: None,
            has_media: false,
            flaws: Vec::new(),
            http_status: None,
            error: None,
            started_at,
            first_token_at: None,
            ended_at: started_at,
        }
    }

    /// The model or adapter that sampled the answer, as far as it is known.
    #[must_use]
    pub fn served_model(&self) -> &str {
        self.served_model.as_deref().unwrap_or(&self.model)
    }

    /// A call that was under way when its proxy ended, which was found out at `noted_at`.
    pub fn interrupted(
        call_id: CallId,
        trial_id: TrialId,
        started_at: Timestamp,
        noted_at: Timestamp,
    ) -> Self {
        Self {
            status: CallStatus::Interrupted,
            error: Some("the proxy ended while the call was under way".to_owned()),
            ended_at: noted_at,
            ..Self::begun(call_id, trial_id, 0, started_at)
        }
    }
}

impl CallRole {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Main, Self::SubAgent, Self::Compaction, Self::Title, Self::Probe];

    /// The name in records and rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::SubAgent => "sub_agent",
            Self::Compaction => "compaction",
            Self::Title => "title",
            Self::Probe => "probe",
        }
    }
}

/// How tokens were sampled: what the request said or, where it was silent, what the served model's generation
/// defaults said. `None` where neither is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sampling {
    /// Divisor of the logits.
    pub temperature: Option<f64>,
    /// Nucleus size.
    pub top_p: Option<f64>,
    /// Number of candidates; 0 or −1 for all.
    pub top_k: Option<i64>,
    /// Structured output, a forced tool choice and the like: the recorded logprob is not that of the distribution
    /// sampled from.
    pub constrained: bool,
    /// Every sampling key of the request as it was sent upstream.
    pub params: serde_json::Map<String, serde_json::Value>,
}

/// What a record lacks. A call with a flaw is kept and trains nothing that the flaw touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// Upstream reported no `prompt_token_ids`.
    MissingPromptIds,
    /// A choice came without `token_ids`.
    MissingTokenIds,
    /// A choice came without logprobs.
    MissingLogprobs,
    /// A choice has a different number of ids and logprobs, so which belongs to which is unknown.
    LengthMismatch,
    /// A logprob was not the logarithm of a probability.
    InvalidLogprob,
    /// Fewer or more choices came than were asked for, or one never finished.
    MissingChoice,
    /// Something in the answer was not of vLLM's form.
    Unreadable,
}

impl Flaw {
    /// The name that serialised records have.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissingPromptIds => "missing_prompt_ids",
            Self::MissingTokenIds => "missing_token_ids",
            Self::MissingLogprobs => "missing_logprobs",
            Self::LengthMismatch => "length_mismatch",
            Self::InvalidLogprob => "invalid_logprob",
            Self::MissingChoice => "missing_choice",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Choice {
    /// One logprob per token, if the record has exactly that.
    pub fn aligned_logprobs(&self) -> Option<&[Option<Logprob>]> {
        (self.logprobs.len() == self.token_ids.len()).then_some(&self.logprobs)
    }
}

impl Call {
    /// The version that sampled each token of a choice of this call.
    pub fn token_versions<'a>(&self, choice: &'a Choice) -> impl Iterator<Item = i32> + use<'a> {
        let mut version = self.policy_version;
        let mut spans = choice.versions.iter().peekable();
        (0..choice.token_ids.len()).map(move |index| {
            while let Some(span) = spans.next_if(|span| span.start as usize <= index) {
                version = span.version;
            }
            version
        })
    }

    /// Makes a failed call of a complete one whose agent got an error instead of the answer.
    pub fn is_undelivered(&mut self) {
        self.status = CallStatus::Failed;
        self.error =
            Some("the agent was answered 503: the capture store could not write the record".to_owned());
    }

    /// Whether the record's sampled tokens may be trained on at all (each still needs a logprob of its own, and the
    /// call's role must be one that is trained).
    pub fn is_trainable(&self) -> bool {
        let blocking = |flaw: &Flaw| !matches!(flaw, Flaw::InvalidLogprob);
        self.status == CallStatus::Complete && !self.flaws.iter().any(blocking)
    }
}
