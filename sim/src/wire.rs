//! vLLM's answers as JSON. The fields have vLLM's order, and are `null` or omitted as in vLLM.

use std::borrow::Cow;

use serde::Serialize;

use super::generation::StopReason;

/// `POST /v1/chat/completions` without `stream`.
#[derive(Serialize)]
pub(super) struct Completion<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'static str,
    pub(super) created: u64,
    pub(super) model: &'a str,
    pub(super) choices: Vec<AnswerChoice<'a>>,
    pub(super) service_tier: Null,
    pub(super) system_fingerprint: &'static str,
    pub(super) usage: UsageCounts,
    pub(super) prompt_logprobs: Null,
    pub(super) prompt_token_ids: Option<&'a [u32]>,
    pub(super) prompt_text: Option<&'a str>,
    pub(super) kv_transfer_params: Null,
    pub(super) ec_transfer_params: Null,
    pub(super) metrics: Null,
}

/// A field that the simulator never fills.
pub(super) type Null = Option<()>;

/// One answer of a completion.
#[derive(Serialize)]
pub(super) struct AnswerChoice<'a> {
    pub(super) index: u32,
    pub(super) message: AnswerMessage<'a>,
    pub(super) logprobs: Option<Logprobs<'a>>,
    pub(super) finish_reason: &'a str,
    pub(super) stop_reason: Option<&'a StopReason>,
    pub(super) token_ids: Option<&'a [u32]>,
    pub(super) routed_experts: Null,
}

/// The message of an answer. `tool_calls` is omitted if it is empty.
#[derive(Serialize)]
pub(super) struct AnswerMessage<'a> {
    pub(super) role: &'static str,
    pub(super) content: Option<String>,
    pub(super) refusal: Null,
    pub(super) annotations: Null,
    pub(super) audio: Null,
    pub(super) function_call: Null,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<ToolCall<'a>>,
    pub(super) reasoning: Option<String>,
}

/// A tool call of a completion.
#[derive(Serialize)]
pub(super) struct ToolCall<'a> {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: Function<'a>,
}

/// A called function. A stream sends name and arguments separately.
#[derive(Default, Serialize)]
pub(super) struct Function<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<&'a str>,
}

/// Logprobs of an answer or of an event.
#[derive(Serialize)]
pub(super) struct Logprobs<'a> {
    pub(super) content: Vec<TokenLogprob<'a>>,
}

/// The logprob of one sampled token.
#[derive(Serialize)]
pub(super) struct TokenLogprob<'a> {
    pub(super) token: Cow<'a, str>,
    pub(super) logprob: f64,
    pub(super) bytes: &'a [u8],
    pub(super) top_logprobs: Vec<TopLogprob<'a>>,
}

/// One of the alternatives. The first is the sampled token itself.
#[derive(Serialize)]
pub(super) struct TopLogprob<'a> {
    pub(super) token: Cow<'a, str>,
    pub(super) logprob: f64,
    pub(super) bytes: Cow<'a, [u8]>,
}

/// The counts of a completion.
#[derive(Serialize)]
pub(super) struct UsageCounts {
    pub(super) prompt_tokens: u32,
    pub(super) total_tokens: u32,
    pub(super) completion_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_tokens_details: Option<PromptDetails>,
    pub(super) completion_tokens_details: CompletionDetails,
}

/// The counts of the prompt's cached tokens.
#[derive(Serialize)]
pub(super) struct PromptDetails {
    cached_tokens: u32,
    created_cache_tokens: u32,
    /// `null` in a completion, and omitted in a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    multimodal_tokens: Option<Null>,
}

impl PromptDetails {
    /// Returns the counts as a stream prints them.
    pub(super) fn of_stream(cached_tokens: u32) -> Self {
        Self { cached_tokens, created_cache_tokens: 0, multimodal_tokens: None }
    }

    /// Returns the counts as a completion prints them.
    pub(super) fn of_completion(cached_tokens: u32) -> Self {
        Self { multimodal_tokens: Some(None), ..Self::of_stream(cached_tokens) }
    }
}

/// The count of the answer's reasoning tokens.
#[derive(Serialize)]
pub(super) struct CompletionDetails {
    pub(super) reasoning_tokens: u32,
}

/// One event of a stream.
#[derive(Serialize)]
pub(super) struct Event<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'static str,
    pub(super) created: u64,
    pub(super) model: &'a str,
    pub(super) choices: &'a [EventChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<UsageCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_fingerprint: Option<&'static str>,
    /// Only in the first event of an answer, and `null` there if not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_token_ids: Option<Option<&'a [u32]>>,
    /// Like `prompt_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_text: Option<Option<&'a str>>,
}

/// One answer's part of an event.
#[derive(Serialize)]
pub(super) struct EventChoice<'a> {
    pub(super) index: u32,
    pub(super) delta: Delta<'a>,
    pub(super) logprobs: Option<Logprobs<'a>>,
    pub(super) finish_reason: Option<&'a str>,
    /// Only with a finish reason. `null` if no stop text or stop token ended the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stop_reason: Option<Option<&'a StopReason>>,
    /// Absent in the first event, and `null` if not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_ids: Option<Option<&'a [u32]>>,
}

/// The text that became visible.
#[derive(Default, Serialize)]
pub(super) struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    /// vLLM's tool parser writes `null` explicitly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Option<Cow<'a, str>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<CallDelta<'a>>,
}

/// A part of a tool call. Its id and type come with the name.
#[derive(Serialize)]
pub(super) struct CallDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    pub(super) index: u32,
    pub(super) function: Function<'a>,
}

impl Delta<'_> {
    /// Returns whether nothing became visible.
    pub(super) fn is_empty(&self) -> bool {
        self.role.is_none()
            && self.content.is_none()
            && self.reasoning.is_none()
            && self.tool_calls.is_empty()
    }
}
