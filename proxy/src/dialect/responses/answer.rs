//! Translates the answer: chat's message or chunks become items, with events if the agent requested a stream.

use std::sync::Arc;

use serde_json::Value;

use super::error;
use super::events::{Events, OfResponse};
use super::items::{Ending, Item, ItemStatus, Voice};
use super::memory::Memory;
use super::object::{Echo, Incomplete, ResponseFailure, ResponseObject, Status};
use super::tools::Tools;
use crate::dialect::adapter::Translator;
use crate::dialect::chat::completion::{ChatCompletion, CompletionMessage, ToolCall, Usage};
use crate::dialect::upstream_error::UpstreamError;

/// Translates the answer of one call.
#[derive(Debug)]
pub(crate) struct ResponsesAdapter {
    is_stream: bool,
    echo: Echo,
    tools: Tools,
    carries_reasoning: bool,
    memory: Arc<Memory>,
    /// The new items of the request, or `None` if the response is not stored.
    stored: Option<Vec<Value>>,
    phase: Phase,
    events: Events,
    items: Vec<Item>,
    /// The item of each of upstream's parallel calls: upstream's index, and the place in `items`.
    calls: Vec<(u32, usize)>,
    finish_reason: Option<String>,
    usage: Option<Usage>,
}

/// The progress of the answer.
#[derive(Debug)]
enum Phase {
    /// Upstream has sent nothing.
    Ahead,
    Speaking(Identity),
    /// The last event is written.
    Over,
}

/// The id and the creation time of the response. The ids of its items contain the same stem.
#[derive(Clone, Debug)]
struct Identity {
    id: String,
    stem: String,
    created_at: u64,
}

impl Identity {
    fn of(answer: &ChatCompletion<'_>) -> Self {
        let stem = answer.stem();
        if stem.is_empty() {
            return Self::own();
        }
        Self { id: format!("resp_{stem}"), stem: stem.to_owned(), created_at: answer.created }
    }

    /// Creates an identity for an answer without id from upstream.
    fn own() -> Self {
        let stem = uuid::Uuid::now_v7().simple().to_string();
        let created_at = jiff::Timestamp::now().as_second().try_into().unwrap_or(0);
        Self { id: format!("resp_{stem}"), stem, created_at }
    }
}

/// The outcome of a response.
struct ResponseEnd {
    status: Status,
    item_status: ItemStatus,
    incomplete: Option<Incomplete>,
    failure: Option<ResponseFailure>,
}

impl ResponseEnd {
    fn incomplete(reason: &'static str) -> Self {
        Self {
            status: Status::Incomplete,
            item_status: ItemStatus::Incomplete,
            incomplete: Some(Incomplete { reason }),
            failure: None,
        }
    }

    fn failed(failure: ResponseFailure) -> Self {
        Self {
            status: Status::Failed,
            item_status: ItemStatus::Incomplete,
            incomplete: None,
            failure: Some(failure),
        }
    }

    fn broken(message: &str) -> Self {
        Self::failed(ResponseFailure { code: "server_error".to_owned(), message: message.to_owned() })
    }
}

impl ResponsesAdapter {
    pub(super) fn new(
        is_stream: bool,
        echo: Echo,
        tools: Tools,
        carries_reasoning: bool,
        memory: Arc<Memory>,
        stored: Option<Vec<Value>>,
    ) -> Self {
        Self {
            is_stream,
            echo,
            tools,
            carries_reasoning,
            memory,
            stored,
            phase: Phase::Ahead,
            events: Events::default(),
            items: Vec::new(),
            calls: Vec::new(),
            finish_reason: None,
            usage: None,
        }
    }

    fn close(&mut self, outcome: &ResponseEnd, out: &mut Vec<u8>) {
        let Some(identity) = self.begin(Identity::own, out) else { return };
        let output = self.finish_items(outcome, out);
        self.remember(&identity, outcome, &output);
        self.phase = Phase::Over;
        let kind = match outcome.status {
            Status::InProgress | Status::Completed => "response.completed",
            Status::Incomplete => "response.incomplete",
            Status::Failed => "response.failed",
        };
        let mut events = std::mem::take(&mut self.events);
        events.write(kind, &OfResponse { response: self.object(&identity, outcome, &output) }, out);
    }

    /// Returns the identity of the response. The first call writes the events that open a response. Returns `None`
    /// after the last event.
    fn begin(&mut self, identity: impl FnOnce() -> Identity, out: &mut Vec<u8>) -> Option<Identity> {
        match &self.phase {
            Phase::Over => None,
            Phase::Speaking(identity) => Some(identity.clone()),
            Phase::Ahead => {
                let identity = identity();
                for kind in ["response.created", "response.in_progress"] {
                    let response = ResponseObject::begun(&identity.id, identity.created_at, &self.echo);
                    self.events.write(kind, &OfResponse { response }, out);
                }
                self.phase = Phase::Speaking(identity.clone());
                Some(identity)
            }
        }
    }

    fn texts(&mut self, message: &CompletionMessage<'_>, stem: &str, out: &mut Vec<u8>) {
        let texts = [(Voice::Reasoning, &message.reasoning), (Voice::Message, &message.content)];
        for (voice, text) in texts {
            if let Some(piece) = text.as_deref().filter(|text| !text.is_empty()) {
                self.say(voice, piece, stem, out);
            }
        }
    }

    fn say(&mut self, voice: Voice, piece: &str, stem: &str, out: &mut Vec<u8>) {
        // Text after another item begins a new item, even if there was earlier text of its kind.
        if !self.items.last().is_some_and(|item| item.is_open(voice)) {
            self.open(Item::text(voice, stem, self.items.len()), out);
        }
        if let Some(item) = self.items.last_mut() {
            item.grow(piece, &mut self.events, out);
        }
    }

    fn call(&mut self, index: u32, call: &ToolCall<'_>, stem: &str, out: &mut Vec<u8>) {
        let known = self.calls.iter().find(|(known, _)| *known == index).map(|(_, at)| *at);
        let at = known.unwrap_or_else(|| {
            let at = self.items.len();
            let tool = self.tools.meant(call.function.name.as_deref().unwrap_or_default());
            let id = call.id.as_deref().map_or_else(|| format!("call_{stem}_{at}"), str::to_owned);
            self.open(Item::call(tool, id, stem, at), out);
            self.calls.push((index, at));
            at
        });
        let piece = call.function.arguments.as_deref().unwrap_or_default();
        if let Some(item) = self.items.get_mut(at).filter(|_| !piece.is_empty()) {
            item.grow(piece, &mut self.events, out);
        }
    }

    /// Adds an item, and finishes the text item before it. Calls remain open until the end, because more pieces of their
    /// arguments may arrive. Also, agents run a call as soon as it is done, which is too early before the record is
    /// durable.
    fn open(&mut self, item: Item, out: &mut Vec<u8>) {
        let ending = Ending { status: ItemStatus::Completed, carries_reasoning: self.carries_reasoning };
        if let Some(last) = self.items.last_mut().filter(|last| last.is_text()) {
            last.finish(ending, &mut self.events, out);
        }
        item.begin(&mut self.events, out);
        self.items.push(item);
    }

    /// Finishes all items and returns the output.
    fn finish_items(&mut self, outcome: &ResponseEnd, out: &mut Vec<u8>) -> Vec<Value> {
        let last = self.items.len().saturating_sub(1);
        let mut output = Vec::with_capacity(self.items.len());
        for (index, item) in self.items.iter_mut().enumerate() {
            // Only the last item can be incomplete: all items before it are complete.
            let status = if index == last { outcome.item_status } else { ItemStatus::Completed };
            item.finish(Ending { status, carries_reasoning: self.carries_reasoning }, &mut self.events, out);
            output.push(item.to_json(status, self.carries_reasoning));
        }
        output
    }

    fn outcome(&self) -> ResponseEnd {
        match self.finish_reason.as_deref() {
            Some("length") => ResponseEnd::incomplete("max_output_tokens"),
            Some("content_filter") => ResponseEnd::incomplete("content_filter"),
            Some("abort") => ResponseEnd::broken("The model's server broke the answer off."),
            None => ResponseEnd::broken("The model's server ended the answer without saying why."),
            Some(_) => ResponseEnd {
                status: Status::Completed,
                item_status: ItemStatus::Completed,
                incomplete: None,
                failure: None,
            },
        }
    }

    fn object<'a>(
        &'a self,
        identity: &'a Identity,
        outcome: &'a ResponseEnd,
        output: &'a [Value],
    ) -> ResponseObject<'a> {
        ResponseObject {
            status: outcome.status,
            error: outcome.failure.as_ref(),
            incomplete_details: outcome.incomplete,
            output,
            usage: self.usage.map(Into::into),
            ..ResponseObject::begun(&identity.id, identity.created_at, &self.echo)
        }
    }

    fn remember(&mut self, identity: &Identity, outcome: &ResponseEnd, output: &[Value]) {
        // A failed response cannot be continued, so it is not stored.
        let Some(mut items) = self.stored.take().filter(|_| outcome.failure.is_none()) else { return };
        items.extend_from_slice(output);
        self.memory.remember(identity.id.clone(), self.echo.parent().map(str::to_owned), items);
    }
}

impl Translator for ResponsesAdapter {
    fn whole(&mut self, answer: &ChatCompletion<'_>) -> Vec<u8> {
        let identity = Identity::of(answer);
        let mut unsent = Vec::new();
        self.usage = answer.usage;
        if let Some(choice) = answer.choices.iter().find(|choice| choice.index == 0) {
            self.texts(&choice.message, &identity.stem, &mut unsent);
            // The calls of a whole answer have no indices.
            for (index, call) in (0..).zip(choice.message.tool_calls.iter().flatten()) {
                self.call(index, call, &identity.stem, &mut unsent);
            }
            self.finish_reason = choice.finish_reason.as_deref().map(str::to_owned);
        }
        // The events of a whole answer are discarded: they only build the items.
        let outcome = self.outcome();
        let output = self.finish_items(&outcome, &mut unsent);
        self.remember(&identity, &outcome, &output);
        self.phase = Phase::Over;
        serde_json::to_vec(&self.object(&identity, &outcome, &output)).unwrap_or_default()
    }

    fn chunk(&mut self, chunk: &ChatCompletion<'_>, out: &mut Vec<u8>) {
        let Some(identity) = self.begin(|| Identity::of(chunk), out) else { return };
        if let Some(choice) = chunk.choices.iter().find(|choice| choice.index == 0) {
            self.texts(&choice.message, &identity.stem, out);
            for call in choice.message.tool_calls.iter().flatten() {
                self.call(call.index, call, &identity.stem, out);
            }
            if let Some(reason) = &choice.finish_reason {
                self.finish_reason = Some(reason.as_ref().to_owned());
            }
        }
        self.usage = chunk.usage.or(self.usage);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        let outcome = self.outcome();
        self.close(&outcome, out);
    }

    fn error(&mut self, error: &UpstreamError, out: &mut Vec<u8>) {
        self.close(&ResponseEnd::failed(error::failure(error)), out);
    }

    /// Returns a failed stream for an overflow. Codex shortens its conversation after such a stream, and gives up after
    /// status 400 with the same error.
    fn error_as_stream(&mut self, error: &UpstreamError) -> Option<Vec<u8>> {
        error.overflow.filter(|_| self.is_stream)?;
        let mut out = Vec::new();
        self.error(error, &mut out);
        Some(out)
    }
}
