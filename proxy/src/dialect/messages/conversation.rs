//! Translates system text and turns to chat messages.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::block::{Block, ToolUse, blocks, texts};
use super::members::{read, refusal};
use crate::dialect::bad_request::BadRequest;

/// Prefix of a line in Claude Code's first system text. The line differs between requests, so no prompt would extend an
/// earlier one.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Chat messages, and how the conversation ends.
pub(super) struct ChatMessages {
    pub(super) messages: Vec<Value>,
    /// Whether the last turn is the assistant's, so that the answer continues it.
    pub(super) is_prefilled: bool,
}

#[derive(Deserialize)]
struct ChatTurn<'a> {
    role: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

/// Consecutive turns of the assistant, merged into one as on Anthropic's servers.
#[derive(Default)]
struct AssistantTurn {
    reasoning: String,
    text: String,
    calls: Vec<Value>,
    call_ids: Vec<String>,
}

/// Translates `system` and `messages`.
///
/// # Errors
/// Returns an error for an unknown role, for blocks that the role cannot have, and for calls at the end without
/// results.
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
    /// The assistant's turn that is still being assembled.
    open: Option<AssistantTurn>,
    /// The ids of the last turn's calls, in order.
    calls: Vec<String>,
}

impl Builder {
    fn system(&mut self, content: &RawValue, place: &str) -> Result<(), BadRequest> {
        let texts = texts(blocks(content, place)?, place)?;
        let text: String = texts.iter().map(|text| without_billing_header(text)).collect();
        // A text with only the billing header is empty, and must not become a message.
        if !text.is_empty() {
            self.close();
            self.messages.push(json!({"role": "system", "content": text}));
        }
        Ok(())
    }

    /// Translates a user turn. Tool results become separate messages before the user's other content.
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
        // Agents send results in the order of completion, and many chat templates match results to calls by order
        // alone.
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

    /// Ends the assistant's turn, if there is one.
    fn close(&mut self) {
        let Some(turn) = self.open.take() else { return };
        self.messages.push(turn.message());
        self.calls = turn.call_ids;
    }

    fn finish(mut self) -> Result<ChatMessages, BadRequest> {
        // Such an answer could not be continued: a template expects the result after a call.
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
        // vLLM parses the arguments into an object, so their spelling does not matter.
        let function = json!({"name": name, "arguments": input.get()});
        self.calls.push(json!({"id": id, "type": "function", "function": function}));
    }

    fn message(&self) -> Value {
        // Chat templates expect `null` for a message that only has tool calls.
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

/// Returns the text of a result, and moves its images to `images`.
fn result_text(content: Vec<Block<'_>>, images: &mut Vec<Value>) -> String {
    let mut lines = Vec::new();
    for block in content {
        match block {
            Block::Text(text) => lines.push(text),
            Block::Image(url) => images.push(image_part(&url)),
            _ => {} // Reading a tool result rejects other blocks.
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

/// Returns a single text as plain content.
fn content_of(parts: Vec<Value>) -> Value {
    match parts.as_slice() {
        [only] if only["type"] == "text" => only["text"].clone(),
        _ => parts.into(),
    }
}
