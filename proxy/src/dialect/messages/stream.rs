//! Translates a stream: each chunk of upstream becomes events immediately.
//!
//! One block is open at a time. Text between two tool calls waits for the end of the first call, because more pieces of
//! its arguments may follow.

use serde_json::Value;

use super::answer::{Calls, MessagesAnswerOptions, SIGNATURE, empty_object, input, message_id};
use super::error;
use super::event::{BlockContent, Ending, Event, Fault, MessageEnvelope, Piece, TokenUsage};
use crate::dialect::chat::completion::{ChatCompletion, CompletionChoice, ToolCall};
use crate::dialect::upstream_error::UpstreamError;

/// The progress of a stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    state: MessagesStreamState,
    open: Option<Open>,
    /// The index of the open block, or of the next block if none is open.
    next: u32,
    /// Text that arrived while a tool call was open.
    waiting_text: String,
    /// Upstream's index of the last tool call.
    last_call: Option<u32>,
    last_arguments: String,
    finish_reason: Option<String>,
    stop_reason: Option<Value>,
    usage: TokenUsage,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum MessagesStreamState {
    #[default]
    Unbegun,
    Begun,
    /// The stream has ended with its last event or with an error.
    Over,
}

/// The kind of the open block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Thinking,
    Text,
    ToolUse,
}

impl Stream {
    pub(super) fn chunk(
        &mut self,
        chunk: &ChatCompletion<'_>,
        asked: &MessagesAnswerOptions,
        out: &mut Vec<u8>,
    ) {
        if self.state == MessagesStreamState::Over {
            return;
        }
        self.begin(chunk, asked, out);
        if let Some(usage) = chunk.usage {
            self.usage = usage.into();
        }
        if let Some(choice) = chunk.choices.iter().find(|choice| choice.index == 0) {
            self.choice(choice, out);
        }
    }

    /// Writes the first event. The first chunk has the prompt's ids, and thus the length of the prompt.
    fn begin(&mut self, chunk: &ChatCompletion<'_>, asked: &MessagesAnswerOptions, out: &mut Vec<u8>) {
        if self.state != MessagesStreamState::Unbegun {
            return;
        }
        self.state = MessagesStreamState::Begun;
        let prompt = chunk.prompt_token_ids.unwrap_or_default().0;
        // The output tokens are unknown until the last chunk.
        self.usage = TokenUsage::of_prompt(prompt.try_into().unwrap_or(u64::MAX));
        let message = MessageEnvelope {
            id: &message_id(chunk),
            kind: "message",
            role: "assistant",
            model: &asked.model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: self.usage,
        };
        Event::MessageStart { message }.write(out);
    }

    fn choice(&mut self, choice: &CompletionChoice<'_>, out: &mut Vec<u8>) {
        let said = &choice.message;
        if let Some(thinking) = said.reasoning.as_deref().filter(|text| !text.is_empty()) {
            self.open(Open::Thinking, BlockContent::Thinking { thinking: "", signature: "" }, out);
            self.piece(Piece::Thinking { thinking }, out);
        }
        if let Some(text) = said.content.as_deref().filter(|text| !text.is_empty()) {
            self.text(text, out);
        }
        for call in said.tool_calls.iter().flatten() {
            self.call(call, out);
        }
        if let Some(reason) = &choice.finish_reason {
            self.finish_reason = Some(reason.to_string());
            self.stop_reason.clone_from(&choice.stop_reason);
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        // A text block would close the call, whose arguments may be incomplete.
        if self.open == Some(Open::ToolUse) {
            self.waiting_text.push_str(text);
            return;
        }
        self.open(Open::Text, BlockContent::Text { text: "" }, out);
        self.piece(Piece::Text { text }, out);
    }

    fn call(&mut self, call: &ToolCall<'_>, out: &mut Vec<u8>) {
        if self.state == MessagesStreamState::Over {
            return;
        }
        // Anthropic's streams have one open block, so upstream must finish one call before the next.
        let is_next = self.last_call.is_none_or(|last| call.index > last);
        if !is_next && (self.last_call != Some(call.index) || self.open != Some(Open::ToolUse)) {
            let message = "upstream went back to a tool call that had ended";
            self.error(&UpstreamError::new(http::StatusCode::BAD_GATEWAY, message), out);
            return;
        }
        if is_next {
            self.close(out);
            self.last_call = Some(call.index);
            self.last_arguments.clear();
            let id = call.id.as_deref().unwrap_or_default();
            let name = call.function.name.as_deref().unwrap_or_default();
            let input = empty_object();
            self.open(Open::ToolUse, BlockContent::ToolUse { id, name, input: &input }, out);
        }
        if let Some(partial_json) = call.function.arguments.as_deref().filter(|text| !text.is_empty()) {
            self.arguments(partial_json, out);
        }
    }

    /// Adds a piece of the arguments. Clients parse the arguments as they arrive and fail if they are not an object.
    /// Other arguments are sent at the end of the block.
    fn arguments(&mut self, partial_json: &str, out: &mut Vec<u8>) {
        self.last_arguments.push_str(partial_json);
        if is_object(&self.last_arguments) {
            self.piece(Piece::InputJson { partial_json }, out);
        }
    }

    /// Opens a block of this kind, unless such a block is open.
    fn open(&mut self, kind: Open, content_block: BlockContent<'_>, out: &mut Vec<u8>) {
        if self.open == Some(kind) {
            return;
        }
        self.close(out);
        self.open = Some(kind);
        Event::ContentBlockStart { index: self.next, content_block }.write(out);
    }

    fn piece(&self, delta: Piece<'_>, out: &mut Vec<u8>) {
        Event::ContentBlockDelta { index: self.next, delta }.write(out);
    }

    /// Closes the open block, and then writes the text that waited for its end.
    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(open) = self.open.take() else { return };
        match open {
            Open::Thinking => self.piece(Piece::Signature { signature: SIGNATURE }, out),
            Open::ToolUse if !is_object(&self.last_arguments) => {
                let input = input(&self.last_arguments);
                self.piece(Piece::InputJson { partial_json: input.get() }, out);
            }
            Open::ToolUse | Open::Text => {}
        }
        Event::ContentBlockStop { index: self.next }.write(out);
        self.next = self.next.saturating_add(1);
        if !self.waiting_text.is_empty() {
            let text = std::mem::take(&mut self.waiting_text);
            self.text(&text, out);
            self.close(out);
        }
    }

    pub(super) fn end(&mut self, asked: &MessagesAnswerOptions, out: &mut Vec<u8>) {
        if self.state != MessagesStreamState::Begun {
            return;
        }
        self.close(out);
        if self.next == 0 {
            // Clients expect a first block, also in an empty answer.
            self.open(Open::Text, BlockContent::Text { text: "" }, out);
            self.close(out);
        }
        self.state = MessagesStreamState::Over;
        let calls = Calls::of(self.last_call.map(|_| self.last_arguments.as_str()));
        let stop = asked.stop(self.finish_reason.as_deref(), self.stop_reason.as_ref(), calls);
        let delta = Ending { stop_reason: stop.reason, stop_sequence: stop.sequence };
        Event::MessageDelta { delta, usage: self.usage }.write(out);
        Event::MessageStop.write(out);
    }

    pub(super) fn error(&mut self, error: &UpstreamError, out: &mut Vec<u8>) {
        if self.state == MessagesStreamState::Over {
            return;
        }
        self.state = MessagesStreamState::Over;
        let message = error::message(error);
        Event::Error { error: Fault { kind: error::kind(error), message: &message } }.write(out);
    }
}

/// Whether the arguments, or their beginning, are an object.
fn is_object(arguments: &str) -> bool {
    arguments.starts_with('{')
}
