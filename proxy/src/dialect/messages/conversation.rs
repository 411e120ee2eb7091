//! The conversation: system text and turns become chat messages.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::block::{Block, ToolUse, blocks, texts};
use super::members::{read, refusal};
use crate::dialect::bad_request::BadRequest;

/// Claude Code's first system text is one line of this; it differs from request to request, and no prompt would be the
/// beginning of the next one.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Chat messages, and how they end.
pub(super) struct ChatMessages {
    pub(super) messages: Vec<Value>,
    /// The last turn is the assistant's: the answer continues it.
    pub(super) is_prefilled: bool,
}

#[derive(Deserialize)]
struct ChatTurn<'a> {
    role: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

/// Several turns of the assistant in a row are one, as Anthropic's servers take them.
#[derive(Default)]
struct AssistantTurn {
    reasoning: String,
    text: String,
    calls: Vec<Value>,
    call_ids: Vec<String>,
}

/// Makes chat messages of `system` and `messages`.
pub(super) fn conversation(
    system: Option<&RawValue>,
    messages: &RawValue,
) -> Result<ChatMessages, BadRequest> {
    let mut builder = Builder::default();
    if let Some(system) = system {
        builder.system(system, "system")?;
    }
    let turns: Vec<ChatTurn<'_>> = read(messages, "messages")?;
    for (at, turn) in turns.iter().enumerate() {
        let place = format!("messages[{at}].content");
        match turn.role.as_str() {
            "user" => builder.user(turn.content, &place)?,
            "assistant" => builder.assistant(turn.content, &place)?,
            "system" => builder.system(turn.content, &place)?,
            other => {
                let fault = format!("is {other:?}: it can be \"user\", \"assistant\" or \"system\"");
                return Err(refusal(&format!("messages[{at}].role"), &fault));
            }
        }
    }
    builder.finish()
}

#[derive(Default)]
struct Builder {
    messages: Vec<Value>,
    /// The assistant's turn that is being put together.
    open: Option<AssistantTurn>,
    /// The ids of the last turn's calls, in their order.
    calls: Vec<String>,
}

impl Builder {
    fn system(&mut self, content: &RawValue, place: &str) -> Result<(), BadRequest> {
        let texts = texts(blocks(content, place)?, place)?;
        let text: String = texts.iter().map(|text| without_billing_header(text)).collect();
        if !text.is_empty() {
            self.close();
            self.messages.push(json!({"role": "system", "content": text}));
        }
        Ok(())
    }

    /// Tool results become messages of their own, in front of what else the user says.
    fn user(&mut self, content: &RawValue, place: &str) -> Result<(), BadRequest> {
        self.close();
        let mut results = Vec::new();
        let mut images = Vec::new();
        let mut parts = Vec::new();
        for (at, block) in blocks(content, place)?.into_iter().enumerate() {
            match block {
                Block::Text(text) => parts.extend(text_part(&text)),
                Block::Image(url) => parts.push(image_part(&url)),
                Block::ToolResult { id, content } => results.push((id, result_text(content, &mut images))),
                Block::Thinking(_) | Block::RedactedThinking | Block::ToolUse(_) => {
                    return Err(refusal(
                        &format!("{place}[{at}]"),
                        "is a block that only an assistant's turn can have",
                    ));
                }
            }
        }
        // Agents send results as they come in, and many chat templates tell them apart by their order alone.
        results.sort_by_key(|(id, _)| self.calls.iter().position(|call| call == id).unwrap_or(usize::MAX));
        self.messages.extend(
            results
                .into_iter()
                .map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text})),
        );
        images.append(&mut parts);
        if !images.is_empty() {
            self.messages.push(json!({"role": "user", "content": content_of(images)}));
        }
        Ok(())
    }

    fn assistant(&mut self, content: &RawValue, place: &str) -> Result<(), BadRequest> {
        let blocks = blocks(content, place)?;
        let turn = self.open.get_or_insert_default();
        for (at, block) in blocks.into_iter().enumerate() {
            match block {
                Block::Text(text) => turn.text.push_str(&text),
                Block::Thinking(thinking) => turn.reasoning.push_str(&thinking),
                Block::RedactedThinking => {}
                Block::ToolUse(tool_use) => turn.call(&tool_use),
                Block::Image(_) | Block::ToolResult { .. } => {
                    return Err(refusal(
                        &format!("{place}[{at}]"),
                        "is a block that only a user's turn can have",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Ends the assistant's turn, if one is open.
    fn close(&mut self) {
        let Some(turn) = self.open.take() else { return };
        self.messages.push(turn.message());
        self.calls = turn.call_ids;
    }

    fn finish(mut self) -> Result<ChatMessages, BadRequest> {
        if self.open.as_ref().is_some_and(|turn| !turn.calls.is_empty()) {
            return Err(refusal("messages", "end in a tool_use without its tool_result"));
        }
        let is_prefilled = self.open.is_some();
        self.close();
        Ok(ChatMessages { messages: self.messages, is_prefilled })
    }
}

impl AssistantTurn {
    fn call(&mut self, ToolUse { id, name, input }: &ToolUse<'_>) {
        self.call_ids.push(id.to_string());
        // vLLM reads the arguments back into an object: the agent's own spelling of it is as good as any.
        let function = json!({"name": name, "arguments": input.get()});
        self.calls.push(json!({"id": id, "type": "function", "function": function}));
    }

    fn message(&self) -> Value {
        let content = if self.text.is_empty() && !self.calls.is_empty() {
            Value::Null
        } else {
            self.text.as_str().into()
        };
        let mut message =
            Map::from_iter([("role".to_owned(), "assistant".into()), ("content".to_owned(), content)]);
        if !self.reasoning.is_empty() {
            message.insert("reasoning".into(), self.reasoning.as_str().into());
        }
        if !self.calls.is_empty() {
            message.insert("tool_calls".into(), self.calls.clone().into());
        }
        message.into()
    }
}

fn without_billing_header(text: &str) -> &str {
    if text.starts_with(BILLING_HEADER) { text.split_once('\n').map_or("", |(_, rest)| rest) } else { text }
}

/// A result's text; its images are put aside.
fn result_text(content: Vec<Block<'_>>, images: &mut Vec<Value>) -> String {
    let mut lines = Vec::new();
    for block in content {
        match block {
            Block::Text(text) => lines.push(text),
            Block::Image(url) => images.push(image_part(&url)),
            _ => {} // not in a tool result: it would not have been read
        }
    }
    lines.join("\n")
}

fn text_part(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn image_part(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// A single text is content by itself.
fn content_of(parts: Vec<Value>) -> Value {
    match parts.as_slice() {
        [only] if only["type"] == "text" => only["text"].clone(),
        _ => parts.into(),
    }
}
