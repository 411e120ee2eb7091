//! One model request of an agent and its answer, as captured. Missing data is never filled in by a guess.

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
    /// The call's name. Names sort by the time at which the calls arrived.
    pub call_id: CallId,
    /// The trial whose key the agent used.
    pub trial_id: TrialId,
    /// The wire format of the agent's request.
    pub dialect: Dialect,
    /// The model as the agent named it.
    pub model: String,
    /// The model as the answer named it, if that is another name: agents use an alias, or name no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_model: Option<String>,
    /// How the call ended.
    pub status: CallStatus,
    /// The role that a rule gave the call at admission. [`crate::roles`] makes the final decision.
    pub role: CallRole,
    /// The conversation that the messages continue. `None` if it was not determined (`history` is `off`, or no
    /// messages).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuation: Option<Continuation>,
    /// The prompt that vLLM reported for this call (`prompt_token_ids`). Empty if vLLM reported none.
    pub prompt_token_ids: TokenList,
    /// The sampled answers by `index`. A complete call has `n` of these.
    pub choices: Vec<Choice>,
    /// The sampling parameters.
    pub sampling: Sampling,
    /// The policy version of the upstream when the call was sent: an ordinal of rolltap. It applies to every token
    /// except those in [`Choice::versions`].
    pub policy_version: i32,
    /// Whether the weights changed before the answer was complete. For a streamed answer, [`Choice::versions`] has the
    /// first token of each newer version. For an answer in one piece that token is unknown, and all tokens bear the
    /// older version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub straddles_versions: bool,
    /// The names that the trainer or the upstream gives to the versions of the tokens, for versions with a name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub version_labels: BTreeMap<i32, String>,
    /// The URL of the replica that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Whether the messages contained images, audio or video. `prompt_token_ids` then has placeholders for these.
    pub has_media: bool,
    /// The defects of this record. Empty for a call that can be trained.
    pub flaws: Vec<Flaw>,
    /// The HTTP status of the upstream's answer, if there was an answer.
    pub http_status: Option<u16>,
    /// A readable description of the error.
    pub error: Option<String>,
    /// When the request was received.
    pub started_at: Timestamp,
    /// When the first sampled token was received. For an answer in one piece, this is when all tokens were received.
    pub first_token_at: Option<Timestamp>,
    /// When the end of the answer was received.
    pub ended_at: Timestamp,
}

/// One sampled answer of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// vLLM's `choices[].index`.
    pub index: u32,
    /// The sampled tokens (`choices[].token_ids`), including stop tokens and the tokens of stop strings.
    pub token_ids: Vec<TokenId>,
    /// The logprob of each token, `None` if vLLM gave no usable number. A sound record has as many as `token_ids`.
    pub logprobs: Vec<Option<Logprob>>,
    /// `stop`, `length`, `tool_calls`, `abort`, …, or `None` if the answer is incomplete.
    pub finish_reason: Option<String>,
    /// vLLM's `stop_reason`: the stop string or stop token id that ended the answer.
    pub stop_reason: Option<serde_json::Value>,
    /// The changes of weights during the answer, in order. Empty if one version sampled all tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionSpan>,
}

/// The part of an answer that newer weights sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionSpan {
    /// The index in [`Choice::token_ids`] of the first token of this version. Tokens that were on their way from
    /// upstream when the change was announced count as tokens of the new version.
    pub start: u32,
    /// The policy version, up to the next span or the end of the answer.
    pub version: i32,
}

/// The wire format of an agent.
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
    /// No wire format: the agent recorded the tokens itself ([`crate::agent_reported`]).
    Returned,
}

impl Dialect {
    /// Returns which side recorded the tokens of calls in this dialect.
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
    /// The whole answer arrived and was sent to the agent.
    Complete,
    /// The upstream answered with an error, was unreachable or broke off, or the agent got an error instead of the
    /// whole answer.
    Failed,
    /// The agent disconnected, or the trial was sealed, before the answer was complete.
    Cancelled,
    /// The proxy ended while the call was in flight.
    Interrupted,
}

/// The purpose of a call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CallRole {
    /// The agent's own work at its task. The default if no rule determines another role.
    #[default]
    Main,
    /// Work that the agent delegated to another conversation with its own instructions.
    SubAgent,
    /// The answer is a summary that replaces the conversation so far.
    Compaction,
    /// The call names a conversation for a user interface.
    Title,
    /// A request for almost nothing, to find out whether the model answers.
    Probe,
}

impl Call {
    /// Returns the record of a call that has only arrived.
    pub fn begun(call_id: CallId, trial_id: TrialId, policy_version: i32, started_at: Timestamp) -> Self {
        Self {
            call_id,
            trial_id,
            dialect: Dialect::ChatCompletions,
            model: String::new(),
            served_model: None,
            // The status until the call ends: it is correct if the agent disconnects before an answer.
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

    /// Returns the name of the model or adapter that sampled the answer, if known, or the name in the request.
    #[must_use]
    pub fn served_model(&self) -> &str {
        self.served_model.as_deref().unwrap_or(&self.model)
    }

    /// Returns the record of a call that was in flight when its proxy ended. The next proxy found it at `noted_at`.
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

impl CallStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Complete, Self::Failed, Self::Cancelled, Self::Interrupted];

    /// The name in serialised records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
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

/// The sampling parameters: those of the request, or else the generation defaults of the served model. `None` if both
/// are unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sampling {
    /// The divisor of the logits.
    pub temperature: Option<f64>,
    /// The nucleus size.
    pub top_p: Option<f64>,
    /// The number of candidates. 0 and −1 stand for all.
    pub top_k: Option<i64>,
    /// Whether sampling was constrained, such as by structured output or a forced tool choice. The recorded logprob is
    /// then not that of the distribution that was sampled from.
    pub constrained: bool,
    /// Every sampling key of the request as sent upstream.
    pub params: serde_json::Map<String, serde_json::Value>,
}

/// A defect of a record. A call with a flaw stays in the record, and its affected tokens are not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// The upstream reported no `prompt_token_ids`.
    MissingPromptIds,
    /// A choice had no `token_ids`.
    MissingTokenIds,
    /// A choice had no logprobs.
    MissingLogprobs,
    /// The numbers of ids and logprobs of a choice differ, so their correspondence is unknown.
    LengthMismatch,
    /// A logprob was not the logarithm of a probability.
    InvalidLogprob,
    /// The answer had fewer or more choices than requested, or a choice without an end.
    MissingChoice,
    /// Part of the answer was not in vLLM's format.
    Unreadable,
}

impl Flaw {
    /// Every flaw.
    pub const ALL: [Self; 7] = [
        Self::MissingPromptIds,
        Self::MissingTokenIds,
        Self::MissingLogprobs,
        Self::LengthMismatch,
        Self::InvalidLogprob,
        Self::MissingChoice,
        Self::Unreadable,
    ];

    /// The name in serialised records.
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

    /// Returns the remedy, for the upstream's operator. `None` if no remedy is known.
    #[must_use]
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::MissingPromptIds => Some(
                "the answer has no prompt_token_ids; vLLM sends them for return_token_ids since 0.10.2, unless a router in \
                 between takes them out or does not pass return_token_ids on",
            ),
            Self::MissingTokenIds => Some(
                "a choice has no token_ids; vLLM sends them for return_token_ids since 0.10.2, unless a router in between takes \
                 them out or does not pass return_token_ids on",
            ),
            Self::MissingLogprobs => Some(
                "a choice has no logprobs; vLLM sends them where the request has logprobs, unless a router in between takes \
                 them out",
            ),
            Self::InvalidLogprob => Some(
                "a logprob is not that of a token; start vLLM with --logprobs-mode raw_logprobs or processed_logprobs",
            ),
            Self::LengthMismatch | Self::MissingChoice | Self::Unreadable => None,
        }
    }
}

impl Choice {
    /// Returns the logprobs if there is exactly one per token.
    pub fn aligned_logprobs(&self) -> Option<&[Option<Logprob>]> {
        // Lists of different lengths cannot be matched, so no part of the logprobs is usable.
        (self.logprobs.len() == self.token_ids.len()).then_some(&self.logprobs)
    }
}

impl Call {
    /// Returns the policy version of each token of a choice of this call.
    pub fn token_versions<'a>(&self, choice: &'a Choice) -> impl Iterator<Item = i32> + use<'a> {
        let mut version = self.policy_version;
        let mut spans = choice.versions.iter().peekable();
        (0..choice.token_ids.len()).map(move |index| {
            // Several spans may start at one token if no token arrived between two changes. The last one counts.
            while let Some(span) = spans.next_if(|span| span.start as usize <= index) {
                version = span.version;
            }
            version
        })
    }

    /// Turns a complete call into a failed one, because the agent got an error instead of the answer.
    pub fn is_undelivered(&mut self) {
        self.status = CallStatus::Failed;
        self.error =
            Some("the agent was answered 503: the capture store could not write the record".to_owned());
    }

    /// Whether the call's sampled tokens may be trained. Each token must also have a logprob, and the trial must train
    /// the call's role.
    pub fn is_trainable(&self) -> bool {
        // An invalid logprob affects a single token, which has no logprob then. Every other flaw affects the whole
        // call.
        let blocking = |flaw: &Flaw| !matches!(flaw, Flaw::InvalidLogprob);
        self.status == CallStatus::Complete && !self.flaws.iter().any(blocking)
    }
}
