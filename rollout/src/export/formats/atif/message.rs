//! The words of a step: chat messages in ATIF's fields.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::export::shared::transcript::Message;

/// The words of an answer.
#[derive(Debug, Default, Serialize)]
pub(super) struct AgentMessage {
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    /// The results of the tool calls, which are in the next request.
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation>,
}

#[derive(Debug, Serialize)]
struct ToolCall {
    tool_call_id: String,
    function_name: String,
    arguments: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<RawArguments>,
}

/// The arguments as the model wrote them, if they are no JSON object.
#[derive(Debug, Serialize)]
struct RawArguments {
    raw_arguments: String,
}

/// The results of tool calls.
#[derive(Debug, Default, Serialize)]
pub(super) struct Observation {
    results: Vec<ToolResult>,
}

#[derive(Debug, Serialize)]
struct ToolResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call_id: Option<String>,
    content: String,
}

impl AgentMessage {
    pub(super) fn of(message: &Message) -> Self {
        let reasoning = message.get("reasoning").or_else(|| message.get("reasoning_content"));
        let calls = message.get("tool_calls").and_then(Value::as_array);
        Self {
            message: text_of(message),
            reasoning_content: reasoning.and_then(Value::as_str).map(str::to_owned),
            tool_calls: calls.into_iter().flatten().map(ToolCall::of).collect(),
            observation: None,
        }
    }

    /// Adds the result of a tool call. Returns false if the call is not of this answer: ATIF allows only results of the
    /// step's own calls.
    pub(super) fn observe(&mut self, result: &Message) -> bool {
        let Some(id) = result.get("tool_call_id").and_then(Value::as_str) else { return false };
        let is_own = self.tool_calls.iter().any(|call| call.tool_call_id == id);
        if is_own {
            let result = ToolResult { source_call_id: Some(id.to_owned()), content: text_of(result) };
            self.observation.get_or_insert_default().results.push(result);
        }
        is_own
    }
}

impl ToolCall {
    fn of(call: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let function = &call["function"];
        let (arguments, extra) = match read_arguments(&function["arguments"]) {
            Ok(arguments) => (arguments, None),
            Err(raw_arguments) => (Map::new(), Some(RawArguments { raw_arguments })),
        };
        Self { tool_call_id: text(&call["id"]), function_name: text(&function["name"]), arguments, extra }
    }
}

/// Returns the arguments as an object. A chat message has them as a text with JSON, which a model may get wrong; then the
/// error is that text.
fn read_arguments(arguments: &Value) -> Result<Map<String, Value>, String> {
    match arguments {
        Value::Object(arguments) => Ok(arguments.clone()),
        Value::String(text) => serde_json::from_str(text).map_err(|_| text.clone()),
        // A call without arguments is a call of a function without parameters.
        Value::Null => Ok(Map::new()),
        other => Err(other.to_string()),
    }
}

impl Observation {
    /// The result of a tool call that is in another trajectory, or of a client that names no call.
    pub(super) fn of_elsewhere(result: &Message) -> Self {
        Self { results: vec![ToolResult { source_call_id: None, content: text_of(result) }] }
    }
}

/// Returns the text of a message. Parts other than text are named in square brackets, because a rollout does not carry
/// media.
pub(super) fn text_of(message: &Message) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().map(|part| match (part["text"].as_str(), part["type"].as_str()) {
                (Some(text), _) => text.to_owned(),
                (None, kind) => format!("[{}]", kind.unwrap_or("unknown")),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// Returns the role of a message.
pub(super) fn role_of(message: &Message) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}
