//! A message as the template reads it, after vLLM's processing (`renderers/chat_utils.py`,
//! `_parse_chat_message_content` and `_postprocess_messages`, after the validation of the request model).

use minijinja::Value;
use minijinja::value::ValueKind;
use serde_json::{Map, Value as Json};

use super::content::{self, MessageContent};
use super::value::{self, to_value};
use super::{ContentFormat, RenderError, tool_calls};

/// A message as the template reads it. Its texts are shared between clones.
#[derive(Clone, Debug)]
pub(crate) struct TemplateMessage {
    /// The map that the template reads.
    value: Value,
    role: Role,
}

/// The roles that are processed differently. Only the template distinguishes the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    System,
    Developer,
    Assistant,
    Tool,
    Other,
}

impl TemplateMessage {
    /// Reads a request's message. The content gets the form `format`.
    pub(super) fn read(message: &Json, format: ContentFormat) -> Result<Self, RenderError> {
        let message = message.as_object().ok_or(unreadable("it is no object"))?;
        let Some(Json::String(name)) = message.get("role") else {
            return Err(unreadable("it has no role"));
        };
        let role = Role::of(name);
        let content = MessageContent::read(message.get("content"), role == Role::System)?;
        let content = match (format, role) {
            (ContentFormat::String, _) => content.text(),
            (ContentFormat::OpenAi, Role::Tool) => content.tool_parts()?,
            (ContentFormat::OpenAi, _) => content.parts()?,
        };
        let mut members = vec![("role", Value::from(name.as_str())), ("content", content)];
        match role {
            Role::Assistant => add_answer(&mut members, message)?,
            Role::Tool => members.extend(given(message, "tool_call_id")?),
            _ => {}
        }
        for key in ["name", "task"] {
            members.extend(message.get(key).and_then(Json::as_str).map(|text| (key, Value::from(text))));
        }
        if role == Role::Developer {
            members.push(("tools", to_value(message.get("tools").unwrap_or(&Json::Null))?));
        }
        Ok(Self { value: Value::from_pairs(members), role })
    }

    /// Returns the message with another text as its content. All other members stay, including tool calls.
    pub(crate) fn with_content(&self, content: &str) -> Self {
        let is_in_parts = self.content().kind() == ValueKind::Seq;
        let content = if is_in_parts { content::one_part(content) } else { Value::from(content) };
        self.with(|key| (key == "content").then(|| content.clone()))
    }

    /// Returns the message with another text as the only argument of its last tool call. `None` if it has no tool call.
    pub(crate) fn with_argument(&self, argument: &str) -> Option<Self> {
        let calls = tool_calls::with_argument(&self.value.get_attr("tool_calls").ok()?, argument)?;
        Some(self.with(|key| (key == "tool_calls").then(|| calls.clone())))
    }

    /// Returns the map that the template reads.
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    pub(super) fn is_developer(&self) -> bool {
        self.role == Role::Developer
    }

    pub(super) fn is_system(&self) -> bool {
        self.role == Role::System
    }

    /// Returns a developer message as a system message, for templates that do not know the role (`renderers/hf.py`,
    /// `_convert_developer_to_system`). Other messages stay unchanged.
    pub(super) fn developer_as_system(&self) -> Self {
        if !self.is_developer() {
            return self.clone();
        }
        let system = self.without("tools").with(|key| (key == "role").then(|| Value::from("system")));
        Self { role: Role::System, ..system }
    }

    /// Creates a system message, which replaces several.
    pub(super) fn system(content: &str) -> Self {
        let members = [("role", Value::from("system")), ("content", Value::from(content))];
        Self { value: Value::from_pairs(members), role: Role::System }
    }

    pub(super) fn content(&self) -> Value {
        self.value.get_attr("content").unwrap_or_default()
    }

    fn with(&self, other: impl Fn(&str) -> Option<Value>) -> Self {
        Self { value: value::with(&self.value, other), role: self.role }
    }

    fn without(&self, key: &str) -> Self {
        let pairs = value::pairs(&self.value).filter(|(name, _)| name.as_str() != Some(key));
        Self { value: Value::from_pairs(pairs), role: self.role }
    }
}

impl Role {
    fn of(name: &str) -> Self {
        match name {
            "system" => Self::System,
            "developer" => Self::Developer,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            _ => Self::Other,
        }
    }
}

/// Adds the members that only answers have: tool calls and reasoning, the latter under both of its names.
fn add_answer(
    members: &mut Vec<(&'static str, Value)>,
    message: &Map<String, Json>,
) -> Result<(), RenderError> {
    match message.get("tool_calls") {
        None | Some(Json::Null) => {}
        // Omit an empty list: some templates would take another path.
        Some(Json::Array(calls)) if calls.is_empty() => {}
        Some(Json::Array(calls)) => members.push(("tool_calls", tool_calls::read(calls)?)),
        Some(_) => return Err(unreadable("its tool_calls are no list")),
    }
    let said = |key: &str| message.get(key).filter(|value| !value.is_null());
    // The newer name takes precedence.
    if let Some(reasoning) = said("reasoning").or_else(|| said("reasoning_content")) {
        let reasoning = to_value(reasoning)?;
        members.push(("reasoning", reasoning.clone()));
        members.push(("reasoning_content", reasoning));
    }
    Ok(())
}

fn given(
    message: &Map<String, Json>,
    key: &'static str,
) -> Result<Option<(&'static str, Value)>, RenderError> {
    message.get(key).map(|value| Ok((key, to_value(value)?))).transpose()
}

fn unreadable(why: &'static str) -> RenderError {
    RenderError::unreadable("a message", why)
}
