//! The form of Gemini's answers, and the state of one candidate while its answer arrives.

use serde::Serialize;
use serde_json::value::RawValue;

use super::signature;
use crate::dialect::chat::completion::{CompletionMessage, ToolCall, Usage};

/// A whole answer, or one chunk of a stream.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerateContentResponse<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) candidates: Vec<CandidateForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage_metadata: Option<UsageMetadata>,
    pub(super) model_version: &'a str,
    pub(super) response_id: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CandidateForm<'a> {
    pub(super) content: AnswerContent<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finish_message: Option<String>,
    pub(super) index: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct AnswerContent<'a> {
    pub(super) parts: Vec<PartForm<'a>>,
    pub(super) role: &'static str,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartForm<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<CallForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<String>,
}

#[derive(Debug, Serialize)]
struct CallForm {
    #[serde(skip_serializing_if = "String::is_empty")]
    id: String,
    name: String,
    args: Box<RawValue>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageMetadata {
    prompt_token_count: u64,
    candidates_token_count: u64,
    /// The number of reasoning tokens. `candidates_token_count` excludes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    thoughts_token_count: Option<u64>,
    total_token_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_content_token_count: Option<u64>,
}

impl From<Usage> for UsageMetadata {
    fn from(usage: Usage) -> Self {
        let (cached, thoughts) = (usage.cached_tokens(), usage.reasoning_tokens());
        Self {
            prompt_token_count: usage.prompt_tokens,
            candidates_token_count: usage.completion_tokens.saturating_sub(thoughts),
            thoughts_token_count: (thoughts > 0).then_some(thoughts),
            total_token_count: usage.prompt_tokens.saturating_add(usage.completion_tokens),
            cached_content_token_count: (cached > 0).then_some(cached),
        }
    }
}

/// The state of one candidate during the answer.
#[derive(Debug, Default)]
pub(super) struct Candidate {
    /// Reasoning that is not in a signature yet.
    unsigned: String,
    /// The tool call whose arguments are still incomplete. Agents get whole calls only.
    call: Option<Pending>,
    /// The first tool call that was not valid JSON or had no name.
    malformed: Option<String>,
    finish: Option<Finish>,
}

#[derive(Debug, Default)]
struct Pending {
    index: u32,
    id: String,
    name: String,
    arguments: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    Stop,
    MaxTokens,
    Safety,
    Other,
}

impl Candidate {
    /// Adds a message or delta, and returns the parts that are complete.
    pub(super) fn say<'a>(
        &mut self,
        message: &'a CompletionMessage<'_>,
        show_thoughts: bool,
    ) -> Vec<PartForm<'a>> {
        let mut parts = Vec::new();
        if let Some(reasoning) = message.reasoning.as_deref().filter(|text| !text.is_empty()) {
            self.unsigned += reasoning;
            if show_thoughts {
                parts.push(PartForm { text: Some(reasoning), thought: Some(true), ..PartForm::default() });
            }
        }
        // Only the first text after some reasoning gets a signature, because `signature` empties the buffer.
        if let Some(text) = message.content.as_deref().filter(|text| !text.is_empty()) {
            parts.push(PartForm {
                text: Some(text),
                thought_signature: self.signature(),
                ..PartForm::default()
            });
        }
        for piece in message.tool_calls.iter().flatten() {
            parts.extend(self.call_piece(piece));
        }
        parts
    }

    /// Records the reason of the end, and returns the last tool call if it is complete.
    pub(super) fn finish(&mut self, reason: &str) -> Option<PartForm<'static>> {
        let finish = match reason {
            "stop" | "tool_calls" | "function_call" => Finish::Stop,
            "length" => Finish::MaxTokens,
            "content_filter" => Finish::Safety,
            _ => Finish::Other,
        };
        self.finish = Some(finish);
        let call = self.call.take()?;
        self.whole_call(call)
    }

    /// Ends the candidate, and returns its last parts and its finish reason. There is always at least one part, because
    /// clients treat an answer without parts as broken.
    pub(super) fn close(mut self, index: u32, mut parts: Vec<PartForm<'_>>) -> CandidateForm<'_> {
        parts.extend(self.call.take().and_then(|call| self.whole_call(call)));
        // Reasoning without a later part still needs a part for its signature.
        if parts.is_empty() || !self.unsigned.is_empty() {
            let thought_signature = self.signature();
            parts.push(PartForm { text: Some(""), thought_signature, ..PartForm::default() });
        }
        let reason = match (&self.malformed, self.finish) {
            (Some(_), _) => "MALFORMED_FUNCTION_CALL",
            (None, Some(Finish::Stop)) => "STOP",
            (None, Some(Finish::MaxTokens)) => "MAX_TOKENS",
            (None, Some(Finish::Safety)) => "SAFETY",
            (None, Some(Finish::Other) | None) => "OTHER",
        };
        let content = AnswerContent { parts, role: "model" };
        CandidateForm { content, finish_reason: Some(reason), finish_message: self.malformed, index }
    }

    /// Returns the signature for the next part, or `None` if there is no new reasoning.
    fn signature(&mut self) -> Option<String> {
        let reasoning = std::mem::take(&mut self.unsigned);
        (!reasoning.is_empty()).then(|| signature::seal(&reasoning))
    }

    /// Adds a piece of a tool call. If it begins another call, the previous call is complete and returned. Whole
    /// answers have no indices, so the id also separates calls.
    fn call_piece(&mut self, piece: &ToolCall<'_>) -> Option<PartForm<'static>> {
        let id = piece.id.as_deref().unwrap_or_default();
        let is_same = |call: &Pending| call.index == piece.index && (id.is_empty() || call.id == id);
        let before = if self.call.as_ref().is_some_and(is_same) { None } else { self.call.take() };
        let call = self.call.get_or_insert_with(|| Pending {
            index: piece.index,
            id: id.to_owned(),
            ..Pending::default()
        });
        call.name += piece.function.name.as_deref().unwrap_or_default();
        call.arguments += piece.function.arguments.as_deref().unwrap_or_default();
        before.and_then(|call| self.whole_call(call))
    }

    /// Returns the part for a complete call. A call that the token limit cut off is omitted, and the finish reason
    /// reports the limit. Any other malformed call is noted for the finish reason.
    fn whole_call(&mut self, call: Pending) -> Option<PartForm<'static>> {
        let was_cut = self.finish == Some(Finish::MaxTokens);
        let arguments = match call.arguments.trim() {
            "" if was_cut => None,
            // An empty text is a call without arguments, unless it was cut off.
            "" => Some("{}".to_owned()),
            // Outside of strings JSON has line feeds only between tokens, and an event must be one line.
            text => Some(text.replace(['\n', '\r'], " ")),
        };
        let args =
            arguments.filter(|text| text.starts_with('{')).and_then(|text| RawValue::from_string(text).ok());
        match args {
            Some(args) if !call.name.is_empty() => {
                let function_call = Some(CallForm { id: call.id, name: call.name, args });
                let thought_signature = self.signature();
                Some(PartForm { function_call, thought_signature, ..PartForm::default() })
            }
            _ if was_cut => None,
            _ => {
                let told = || format!("Malformed function call: {}({})", call.name, call.arguments);
                self.malformed.get_or_insert_with(told);
                None
            }
        }
    }
}
