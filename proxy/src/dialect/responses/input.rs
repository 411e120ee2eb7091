//! Translates the items of a conversation to chat messages.
//!
//! An answer of the model has several items in this dialect and is one chat message. Consecutive items of reasoning,
//! message and calls become the one assistant message in which they were sampled.

use serde_json::{Value, json};

use super::carried_reasoning;
use super::content::content;
use super::memory::Memory;
use super::reading::{RequestObject, wrong_type};
use super::tools::{TOOL_SEARCH, Tools, flat_name};
use crate::dialect::bad_request::BadRequest;

/// A conversation during its translation.
#[derive(Debug)]
pub(super) struct InputReader<'a> {
    memory: &'a Memory,
    /// The tools of the request. Tools that searches of the conversation found are added.
    tools: &'a mut Tools,
    /// The texts of the leading system and developer messages. Chat templates expect one system message, at the start.
    leading: Option<Vec<String>>,
    messages: Vec<Value>,
    /// The assistant message whose items are being read.
    speaking: Assistant,
}

#[derive(Debug, Default)]
struct Assistant {
    reasoning: Option<String>,
    content: Option<Value>,
    tool_calls: Vec<Value>,
}

impl<'a> InputReader<'a> {
    /// Starts a conversation with the request's instructions.
    pub(super) fn new(instructions: Option<&str>, memory: &'a Memory, tools: &'a mut Tools) -> Self {
        let leading = Some(instructions.map(str::to_owned).into_iter().collect());
        Self { memory, tools, leading, messages: Vec::new(), speaking: Assistant::default() }
    }

    /// Translates one item.
    ///
    /// # Errors
    /// Returns an error for an item of a hosted tool, of an unknown type, or with missing or invalid members.
    pub(super) fn add(&mut self, item: &Value, at: String) -> Result<(), BadRequest> {
        let item = RequestObject::of(item, at)?;
        // OpenAI permits items without type: messages have a role, and references only an id.
        let default = if item.get("role").is_some() { "message" } else { "item_reference" };
        match item.optional_text("type")?.unwrap_or(default) {
            "message" => self.message(&item),
            "reasoning" => self.reasoning(&item),
            "function_call" => {
                let name = flat_name(item.optional_text("namespace")?, item.text("name")?);
                self.call(&item, &name, item.text("arguments")?)
            }
            "custom_tool_call" => {
                let name = flat_name(item.optional_text("namespace")?, item.text("name")?);
                self.call(&item, &name, &json!({"input": item.text("input")?}).to_string())
            }
            "tool_search_call" => {
                let arguments = item.get("arguments").cloned().unwrap_or_else(|| json!({}));
                self.call(&item, TOOL_SEARCH, &arguments.to_string())
            }
            "function_call_output" | "custom_tool_call_output" => {
                let output = content(&item, "output")?;
                self.result(&item, output)
            }
            "tool_search_output" => self.search_result(&item),
            "item_reference" => self.reference(&item),
            other => Err(item.refuse(format_args!(
                "an item of type {other:?} cannot be carried over: it belongs to a tool that OpenAI runs; leave it out"
            ))),
        }
    }

    fn message(&mut self, item: &RequestObject<'_>) -> Result<(), BadRequest> {
        let said = content(item, "content")?;
        match item.text("role")? {
            "assistant" => {
                self.leave_leading();
                // An assistant message has one content, so a second message item begins a new message.
                if self.speaking.content.is_some() {
                    self.finish_speaking();
                }
                self.speaking.content = Some(said);
            }
            "user" => self.push("user", said),
            "system" | "developer" => self.system(item, said)?,
            other => {
                return Err(item.refuse(format_args!(
                    "the role {other:?} is not one of user, assistant, system and developer"
                )));
            }
        }
        Ok(())
    }

    fn system(&mut self, item: &RequestObject<'_>, said: Value) -> Result<(), BadRequest> {
        let Some(leading) = &mut self.leading else {
            self.push("system", said);
            return Ok(());
        };
        match said {
            Value::String(text) => leading.push(text),
            Value::Array(parts) => {
                for part in &parts {
                    let text = part.get("text").and_then(Value::as_str);
                    let text = text.ok_or_else(|| item.refuse("a system message holds text only"))?;
                    leading.push(text.to_owned());
                }
            }
            other => return Err(wrong_type(item.at("content"), "text", &other)),
        }
        Ok(())
    }

    fn reasoning(&mut self, item: &RequestObject<'_>) -> Result<(), BadRequest> {
        let joined = |key: &str, separator: &str| -> Result<Option<String>, BadRequest> {
            let texts = item.members(key)?.map(|(part, at)| RequestObject::of(part, at)?.text("text"));
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            Ok((!texts.is_empty()).then(|| texts.join(separator)))
        };
        // The full text has precedence over the encoded text, and both over a summary.
        let reasoning = if let Some(text) = joined("content", "")? {
            text
        } else if let Some(carried) = item.optional_text("encrypted_content")? {
            carried_reasoning::decode(carried).ok_or_else(|| {
                item.refuse(
                    "its encrypted_content is of another service and cannot be read here: leave the item out",
                )
            })?
        } else if let Some(text) = joined("summary", "\n\n")? {
            text
        } else {
            return Ok(());
        };
        self.leave_leading();
        // Reasoning precedes message and calls, so it begins a new message.
        if !self.speaking.is_silent() {
            self.finish_speaking();
        }
        self.speaking.reasoning = Some(reasoning);
        Ok(())
    }

    fn call(&mut self, item: &RequestObject<'_>, name: &str, arguments: &str) -> Result<(), BadRequest> {
        let id = item.text("call_id")?;
        self.leave_leading();
        let function = json!({"name": name, "arguments": arguments});
        self.speaking.tool_calls.push(json!({"id": id, "type": "function", "function": function}));
        Ok(())
    }

    fn result(&mut self, item: &RequestObject<'_>, output: Value) -> Result<(), BadRequest> {
        let id = item.text("call_id")?;
        self.leave_leading();
        self.finish_speaking();
        self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
        Ok(())
    }

    /// Translates the result of a tool search. The model sees the tools that were found, and can call them from then
    /// on.
    fn search_result(&mut self, item: &RequestObject<'_>) -> Result<(), BadRequest> {
        let found: Vec<_> = item.members("tools")?.collect();
        let told = Value::Array(found.iter().map(|(tool, _)| (*tool).clone()).collect());
        for (tool, at) in found {
            self.tools.add_found(tool, at)?;
        }
        self.result(item, told.to_string().into())
    }

    fn reference(&mut self, item: &RequestObject<'_>) -> Result<(), BadRequest> {
        let id = item.text("id")?;
        let referred = self.memory.item(id).ok_or_else(|| {
            item.refuse(format_args!(
                "there is no item {id:?} in this trial's stored responses: send the item itself"
            ))
        })?;
        self.add(&referred, item.at("id"))
    }

    fn push(&mut self, role: &str, said: Value) {
        self.leave_leading();
        self.finish_speaking();
        self.messages.push(json!({"role": role, "content": said}));
    }

    fn leave_leading(&mut self) {
        let said = self.leading.take().unwrap_or_default();
        if !said.is_empty() {
            self.messages.push(json!({"role": "system", "content": said.join("\n\n")}));
        }
    }

    fn finish_speaking(&mut self) {
        let said = std::mem::take(&mut self.speaking);
        if !said.is_silent() {
            self.messages.push(said.into_message());
        }
    }

    /// Returns the messages, after every item was added.
    pub(super) fn into_messages(mut self) -> Vec<Value> {
        self.leave_leading();
        self.finish_speaking();
        self.messages
    }
}

impl Assistant {
    fn is_silent(&self) -> bool {
        self.reasoning.is_none() && self.content.is_none() && self.tool_calls.is_empty()
    }

    fn into_message(self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.content});
        if let Some(fields) = message.as_object_mut() {
            fields.extend(self.reasoning.map(|text| ("reasoning".to_owned(), text.into())));
            if !self.tool_calls.is_empty() {
                fields.insert("tool_calls".to_owned(), Value::Array(self.tool_calls));
            }
        }
        message
    }
}
