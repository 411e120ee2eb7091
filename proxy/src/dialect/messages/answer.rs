//! Translates upstream's answer for the agent.

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::event::{BlockContent, MessageEnvelope, TokenUsage};
use super::stream::Stream;
use crate::dialect::adapter::Translator;
use crate::dialect::chat::completion::{self, ChatCompletion};
use crate::dialect::upstream_error::UpstreamError;

/// A dummy signature. Clients return thinking only if it is signed, and the proxy ignores the signature's content.
pub(super) const SIGNATURE: &str = "c2lnbmVk";

/// Translates the answer of one call.
#[derive(Debug)]
pub(crate) struct MessagesAdapter {
    asked: MessagesAnswerOptions,
    stream: Stream,
}

/// The parts of the request that affect its answer.
#[derive(Debug)]
pub(super) struct MessagesAnswerOptions {
    /// The model name of the request. Claude Code discards thinking if the answer names another model.
    pub(super) model: String,
    pub(super) stop_sequences: Vec<String>,
}

/// The reason of an answer's end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stop<'a> {
    pub(super) reason: &'static str,
    pub(super) sequence: Option<&'a str>,
}

/// The state of an answer's tool calls at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    None,
    /// The arguments of the last call are incomplete.
    CutShort,
    Whole,
}

impl MessagesAdapter {
    pub(super) fn new(model: String, stop_sequences: Vec<String>) -> Self {
        Self { asked: MessagesAnswerOptions { model, stop_sequences }, stream: Stream::default() }
    }
}

impl Translator for MessagesAdapter {
    fn whole(&mut self, answer: &ChatCompletion<'_>) -> Vec<u8> {
        // A request of this dialect asks for one answer.
        let choice = answer.choices.iter().find(|choice| choice.index == 0);
        let said = choice.map(|choice| &choice.message);
        let calls = said.and_then(|said| said.tool_calls.as_deref()).unwrap_or_default();
        let inputs: Vec<Box<RawValue>> = calls.iter().map(|call| input(arguments(call))).collect();
        let id = message_id(answer);
        let stop = self.asked.stop(
            choice.and_then(|choice| choice.finish_reason.as_deref()),
            choice.and_then(|choice| choice.stop_reason.as_ref()),
            Calls::of(calls.last().map(arguments)),
        );
        let message = MessageEnvelope {
            id: &id,
            kind: "message",
            role: "assistant",
            model: &self.asked.model,
            content: content(said, &inputs),
            stop_reason: Some(stop.reason),
            stop_sequence: stop.sequence,
            usage: answer.usage.map(TokenUsage::from).unwrap_or_default(),
        };
        serde_json::to_vec(&message).unwrap_or_default()
    }

    fn chunk(&mut self, chunk: &ChatCompletion<'_>, out: &mut Vec<u8>) {
        self.stream.chunk(chunk, &self.asked, out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.stream.end(&self.asked, out);
    }

    fn error(&mut self, error: &UpstreamError, out: &mut Vec<u8>) {
        self.stream.error(error, out);
    }
}

/// Returns the blocks in Anthropic's order. Clients expect a first block, so an empty answer becomes an empty text.
fn content<'a>(
    said: Option<&'a completion::CompletionMessage<'_>>,
    inputs: &'a [Box<RawValue>],
) -> Vec<BlockContent<'a>> {
    let mut content = Vec::new();
    let Some(said) = said else { return vec![BlockContent::Text { text: "" }] };
    if let Some(thinking) = said.reasoning.as_deref().filter(|text| !text.is_empty()) {
        content.push(BlockContent::Thinking { thinking, signature: SIGNATURE });
    }
    if let Some(text) = said.content.as_deref().filter(|text| !text.is_empty()) {
        content.push(BlockContent::Text { text });
    }
    let calls = said.tool_calls.iter().flatten().zip(inputs);
    content.extend(calls.map(|(call, input)| BlockContent::ToolUse {
        id: call.id.as_deref().unwrap_or_default(),
        name: call.function.name.as_deref().unwrap_or_default(),
        input,
    }));
    if content.is_empty() {
        content.push(BlockContent::Text { text: "" });
    }
    content
}

fn arguments<'a>(call: &'a completion::ToolCall<'_>) -> &'a str {
    call.function.arguments.as_deref().unwrap_or_default()
}

/// Returns the arguments as a JSON object. Malformed arguments become a member with a name that no tool has, so that no
/// tool runs with incomplete arguments.
pub(super) fn input(arguments: &str) -> Box<RawValue> {
    let text = arguments.trim();
    if text.is_empty() {
        return empty_object();
    }
    match RawValue::from_string(text.to_owned()) {
        // Valid JSON that is not an object is malformed too.
        Ok(input) if text.starts_with('{') => input,
        _ => to_raw_value(&serde_json::json!({"unreadable_arguments": text}))
            .unwrap_or_else(|_| empty_object()),
    }
}

pub(super) fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// Returns the id `msg_…` for vLLM's `chatcmpl-…`.
pub(super) fn message_id(answer: &ChatCompletion<'_>) -> String {
    format!("msg_{}", answer.stem())
}

impl Calls {
    /// Determines the state from the arguments of the last call, or `None` without calls.
    pub(super) fn of(last_arguments: Option<&str>) -> Self {
        match last_arguments {
            None => Self::None,
            Some(text) if serde_json::from_str::<&RawValue>(text).is_ok() => Self::Whole,
            Some(_) => Self::CutShort,
        }
    }
}

impl MessagesAnswerOptions {
    /// Returns Anthropic's stop reason. vLLM's `stop` also ends forced calls and answers that a stop string cut short.
    /// An incomplete call must not run.
    pub(super) fn stop<'a>(
        &'a self,
        finish_reason: Option<&str>,
        stop_reason: Option<&Value>,
        calls: Calls,
    ) -> Stop<'a> {
        let stopped_at = stop_reason.and_then(Value::as_str);
        let sequence = self.stop_sequences.iter().find(|asked| Some(asked.as_str()) == stopped_at);
        let stop = |reason| Stop { reason, sequence: None };
        match (finish_reason, calls, sequence) {
            // Upstream aborts running requests when its weights change, so the answer is incomplete.
            (Some("length" | "abort"), ..) => stop("max_tokens"),
            (Some("content_filter"), ..) => stop("refusal"),
            (_, Calls::Whole, _) => stop("tool_use"),
            (_, _, Some(sequence)) => Stop { reason: "stop_sequence", sequence: Some(sequence) },
            (Some("tool_calls"), ..) | (_, Calls::CutShort, _) => stop("tool_use"),
            _ => stop("end_turn"),
        }
    }
}
