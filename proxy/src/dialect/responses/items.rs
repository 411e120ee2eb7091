//! The items of an answer, during the stream and at its end.

use serde_json::{Value, json};

use super::carried_reasoning;
use super::custom_input::CustomInput;
use super::events::{Delta, Events, OfItem, OfPart, PartIndex};
use super::tools::{Tool, ToolKind};

/// One item of the output.
#[derive(Debug)]
pub(super) struct Item {
    id: String,
    output_index: usize,
    body: ItemBody,
    is_done: bool,
}

/// The content of an item.
#[derive(Debug)]
enum ItemBody {
    Reasoning(String),
    Message(String),
    Function { call: ToolCallItem, arguments: String },
    Custom { call: ToolCallItem, input: CustomInput },
    Search { call: ToolCallItem, arguments: String },
}

/// A call of one of the agent's tools.
#[derive(Debug)]
struct ToolCallItem {
    id: String,
    name: String,
    namespace: Option<String>,
}

/// The two kinds of text in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    Reasoning,
    Message,
}

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
}

impl ItemStatus {
    fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }
}

impl Item {
    /// Creates a text item. `stem` is the common part of all ids of a response.
    pub(super) fn text(voice: Voice, stem: &str, output_index: usize) -> Self {
        let (prefix, body) = match voice {
            Voice::Reasoning => ("rs", ItemBody::Reasoning(String::new())),
            Voice::Message => ("msg", ItemBody::Message(String::new())),
        };
        Self { id: format!("{prefix}_{stem}_{output_index}"), output_index, body, is_done: false }
    }

    /// Creates an item for a call.
    pub(super) fn call(tool: Tool, call_id: String, stem: &str, output_index: usize) -> Self {
        let call = ToolCallItem { id: call_id, name: tool.name, namespace: tool.namespace };
        let (prefix, body) = match tool.kind {
            ToolKind::Function => ("fc", ItemBody::Function { call, arguments: String::new() }),
            ToolKind::Custom => ("ctc", ItemBody::Custom { call, input: CustomInput::default() }),
            ToolKind::Search => ("tsc", ItemBody::Search { call, arguments: String::new() }),
        };
        Self { id: format!("{prefix}_{stem}_{output_index}"), output_index, body, is_done: false }
    }

    /// Whether further text of this kind belongs to this item.
    pub(super) fn is_open(&self, voice: Voice) -> bool {
        let same = match self.body {
            ItemBody::Reasoning(_) => voice == Voice::Reasoning,
            ItemBody::Message(_) => voice == Voice::Message,
            ItemBody::Function { .. } | ItemBody::Custom { .. } | ItemBody::Search { .. } => false,
        };
        same && !self.is_done
    }

    /// Whether the item is text. A text item is done as soon as another item begins.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.body, ItemBody::Reasoning(_) | ItemBody::Message(_))
    }

    /// Writes the events that begin the item.
    pub(super) fn begin(&self, events: &mut Events, out: &mut Vec<u8>) {
        let item = self.to_json(ItemStatus::InProgress, false);
        events.write("response.output_item.added", &OfItem { output_index: self.output_index, item }, out);
        if let Some(part) = self.part() {
            events.write(
                "response.content_part.added",
                &self.told(PartIndex::FIRST, json!({"part": part})),
                out,
            );
        }
    }

    /// Adds a piece to the item, and writes the event for it.
    pub(super) fn grow(&mut self, piece: &str, events: &mut Events, out: &mut Vec<u8>) {
        let (kind, part, delta) = match &mut self.body {
            ItemBody::Reasoning(text) => {
                text.push_str(piece);
                ("response.reasoning_text.delta", PartIndex::FIRST, piece)
            }
            ItemBody::Message(text) => {
                text.push_str(piece);
                ("response.output_text.delta", PartIndex::TEXT, piece)
            }
            ItemBody::Function { arguments, .. } => {
                arguments.push_str(piece);
                ("response.function_call_arguments.delta", PartIndex::NONE, piece)
            }
            ItemBody::Custom { input, .. } => {
                ("response.custom_tool_call_input.delta", PartIndex::NONE, input.take(piece))
            }
            ItemBody::Search { arguments, .. } => {
                arguments.push_str(piece); // The API has no event for pieces of a search.
                return;
            }
        };
        if !delta.is_empty() {
            let delta = Delta { item_id: &self.id, output_index: self.output_index, part, delta };
            events.write(kind, &delta, out);
        }
    }

    /// Writes the events that end the item, unless they were written before.
    pub(super) fn finish(&mut self, end: Ending, events: &mut Events, out: &mut Vec<u8>) {
        // Text items are finished when the next item begins, and again at the end of the answer.
        if std::mem::replace(&mut self.is_done, true) {
            return;
        }
        // Arguments of an unusual form are read at their end, so text may still be missing.
        if let ItemBody::Custom { input, .. } = &mut self.body {
            let (output_index, part, delta) = (self.output_index, PartIndex::NONE, input.finish());
            if !delta.is_empty() {
                let delta = Delta { item_id: &self.id, output_index, part, delta };
                events.write("response.custom_tool_call_input.delta", &delta, out);
            }
        }
        let (kind, index, told) = match &self.body {
            ItemBody::Reasoning(text) => {
                ("response.reasoning_text.done", PartIndex::FIRST, json!({"text": text}))
            }
            ItemBody::Message(text) => ("response.output_text.done", PartIndex::TEXT, json!({"text": text})),
            ItemBody::Function { call, arguments } => (
                "response.function_call_arguments.done",
                PartIndex::NONE,
                json!({"name": call.name, "arguments": arguments}),
            ),
            ItemBody::Custom { input, .. } => {
                ("response.custom_tool_call_input.done", PartIndex::NONE, json!({"input": input.input()}))
            }
            // The API has no event for the end of the arguments of a search.
            ItemBody::Search { .. } => ("", PartIndex::NONE, Value::Null),
        };
        if !kind.is_empty() {
            events.write(kind, &self.told(index, told), out);
        }
        if let Some(part) = self.part() {
            events.write(
                "response.content_part.done",
                &self.told(PartIndex::FIRST, json!({"part": part})),
                out,
            );
        }
        let item = self.to_json(end.status, end.carries_reasoning);
        events.write("response.output_item.done", &OfItem { output_index: self.output_index, item }, out);
    }

    fn told(&self, part: PartIndex, told: Value) -> OfPart<'_, Value> {
        OfPart { item_id: &self.id, output_index: self.output_index, part, told }
    }

    /// Returns the single part of a text item.
    fn part(&self) -> Option<Value> {
        match &self.body {
            ItemBody::Reasoning(text) => Some(json!({"type": "reasoning_text", "text": text})),
            ItemBody::Message(text) => {
                Some(json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}))
            }
            ItemBody::Function { .. } | ItemBody::Custom { .. } | ItemBody::Search { .. } => None,
        }
    }

    /// Returns the item in the form of the wire. Text of an item in progress is omitted, because it follows in events.
    pub(super) fn to_json(&self, status: ItemStatus, carries_reasoning: bool) -> Value {
        let content = || match status {
            ItemStatus::InProgress => json!([]),
            ItemStatus::Completed | ItemStatus::Incomplete => json!([self.part()]),
        };
        let id = &self.id;
        let mut item = match &self.body {
            ItemBody::Reasoning(text) => {
                let carried = carries_reasoning.then(|| carried_reasoning::encode(text));
                json!({"id": id, "type": "reasoning", "summary": [], "content": content(), "encrypted_content": carried})
            }
            ItemBody::Message(_) => {
                json!({"id": id, "type": "message", "role": "assistant", "content": content()})
            }
            ItemBody::Function { call, arguments } => {
                json!({"id": id, "type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
            }
            ItemBody::Custom { call, input } => {
                json!({"id": id, "type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": input.input()})
            }
            ItemBody::Search { call, arguments } => {
                // Clients expect an object, so malformed arguments become an empty one.
                let arguments = serde_json::from_str::<Value>(arguments).unwrap_or_else(|_| json!({}));
                json!({"id": id, "type": "tool_search_call", "call_id": call.id, "execution": "client", "arguments": arguments})
            }
        };
        if let Some(fields) = item.as_object_mut() {
            fields.insert("status".to_owned(), status.name().into());
            fields.extend(self.namespace().map(|namespace| ("namespace".to_owned(), namespace.into())));
        }
        item
    }

    fn namespace(&self) -> Option<&str> {
        match &self.body {
            ItemBody::Reasoning(_) | ItemBody::Message(_) => None,
            ItemBody::Function { call, .. }
            | ItemBody::Custom { call, .. }
            | ItemBody::Search { call, .. } => call.namespace.as_deref(),
        }
    }
}

/// The end of an item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) status: ItemStatus,
    /// Whether the agent requested the reasoning in `encrypted_content`.
    pub(super) carries_reasoning: bool,
}
