//! Translates the agent's request to a chat request. Each key is translated, accepted without effect, or rejected.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::answer::ResponsesAdapter;
use super::input::InputReader;
use super::memory::Memory;
use super::object::Echo;
use super::reading::{RequestObject, wrong_type};
use super::tools::Tools;
use crate::dialect::bad_request::BadRequest;
use crate::dialect::sampling;

/// A chat request, and the adapter for its answer.
#[derive(Debug)]
pub(crate) struct Translated {
    /// The chat request, before the trial's sampling and the proxy's own flags are added.
    pub(crate) chat: Map<String, Value>,
    pub(crate) back: ResponsesAdapter,
}

/// Keys that are forwarded unchanged: those of chat completions and of the template. So are [`sampling::EXTRAS`].
const PASSED: [&str; 5] = ["model", "temperature", "top_p", "stop", "chat_template_kwargs"];

/// Keys that this module translates or checks.
const READ: [&str; 14] = [
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "max_output_tokens",
    "stream",
    "previous_response_id",
    "store",
    "include",
    "top_logprobs",
    "background",
];

/// Keys without effect on a local model: caching, accounting, and limits of hosted tools.
const WITHOUT_EFFECT: [&str; 11] = [
    "client_metadata",
    "max_tool_calls",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "stream_options",
    "truncation",
    "user",
];

/// Values of `include` without effect: results of tools that do not exist here.
const INCLUDED_WITHOUT_EFFECT: [&str; 6] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
];

/// Translates the body of a request. `memory` has the responses that `previous_response_id` refers to.
///
/// # Errors
/// Returns an error for an invalid body, an unknown key, or a key that cannot be translated.
pub(crate) fn translate(body: &str, memory: &Arc<Memory>) -> Result<Translated, BadRequest> {
    let value: Value = serde_json::from_str(body)
        .map_err(|error| BadRequest::new(format!("the request body is not JSON: {error}")))?;
    let Value::Object(object) = value else {
        return Err(wrong_type("the request body", "an object", &value));
    };
    let request = Request { keys: RequestObject::root(&object) };
    request.refuse_unknown()?;
    let mut tools = Tools::default();
    let mut chat = Map::new();
    request.pass(&mut chat);
    request.messages(memory, &mut tools, &mut chat)?;
    // The tools come after the messages, because searches in the conversation add tools.
    tools.lay(request.keys.get("tool_choice"), request.keys.get("parallel_tool_calls"), &mut chat)?;
    request.text(&mut chat)?;
    request.reasoning(&mut chat)?;
    let carries_reasoning = request.includes_carried_reasoning()?;
    let is_stream = request.keys.flag("stream")?.unwrap_or(false);
    chat.insert("stream".to_owned(), is_stream.into());
    if is_stream {
        chat.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    let stored = match request.keys.flag("store")? {
        Some(false) => None,
        // OpenAI stores responses by default.
        Some(true) | None => Some(request.new_items()),
    };
    let back = ResponsesAdapter::new(
        is_stream,
        Echo::of(&object),
        tools,
        carries_reasoning,
        Arc::clone(memory),
        stored,
    );
    Ok(Translated { chat, back })
}

/// The request with its top-level keys.
struct Request<'a> {
    keys: RequestObject<'a>,
}

impl Request<'_> {
    fn refuse_unknown(&self) -> Result<(), BadRequest> {
        if self.keys.flag("background")? == Some(true) {
            let message = "background responses are not supported: leave background out and read the answer as it arrives";
            return Err(BadRequest::at("background", message));
        }
        if self.keys.get("top_logprobs").is_some_and(|top| top.as_u64() != Some(0)) {
            let message =
                "this dialect returns no logprobs (they are in the trial's record): leave top_logprobs out";
            return Err(BadRequest::at("top_logprobs", message));
        }
        let is_known = |key: &str| {
            sampling::EXTRAS.contains(&key)
                || PASSED.contains(&key)
                || READ.contains(&key)
                || WITHOUT_EFFECT.contains(&key)
        };
        match self.keys.keys().find(|key| !is_known(key)) {
            None => Ok(()),
            Some(key) => Err(BadRequest::at(key, refusal(key))),
        }
    }

    fn pass(&self, chat: &mut Map<String, Value>) {
        for key in sampling::EXTRAS.into_iter().chain(PASSED) {
            chat.extend(self.keys.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        // `max_completion_tokens` is avoided: it would override a `max_tokens` that the trial enforces.
        chat.extend(self.keys.get("max_output_tokens").map(|limit| ("max_tokens".to_owned(), limit.clone())));
    }

    fn messages(
        &self,
        memory: &Memory,
        tools: &mut Tools,
        chat: &mut Map<String, Value>,
    ) -> Result<(), BadRequest> {
        for (tool, at) in self.keys.members("tools")? {
            tools.add(tool, at)?;
        }
        let mut conversation = InputReader::new(self.keys.optional_text("instructions")?, memory, tools);
        if let Some(id) = self.keys.optional_text("previous_response_id")? {
            let earlier = memory.items_up_to(id).ok_or_else(|| {
                let message = format!("Previous response with id '{id}' not found.");
                BadRequest::at("previous_response_id", message)
            })?;
            for (index, item) in earlier.iter().enumerate() {
                conversation.add(item, format!("previous_response_id[{index}]"))?;
            }
        }
        if let Some(other) = self.keys.get("input").filter(|input| !input.is_string() && !input.is_array()) {
            return Err(wrong_type("input", "a string or a list of items", other));
        }
        for (index, item) in self.new_items().iter().enumerate() {
            conversation.add(item, format!("input[{index}]"))?;
        }
        let messages = conversation.into_messages();
        if messages.is_empty() {
            let message = "input is missing or empty: send a string or a list of items";
            return Err(BadRequest::at("input", message));
        }
        chat.insert("messages".to_owned(), Value::Array(messages));
        Ok(())
    }

    /// Returns the items that the request adds to the conversation.
    fn new_items(&self) -> Vec<Value> {
        match self.keys.get("input") {
            Some(Value::Array(items)) => items.clone(),
            Some(Value::String(text)) => vec![json!({"type": "message", "role": "user", "content": text})],
            _ => Vec::new(),
        }
    }

    fn text(&self, chat: &mut Map<String, Value>) -> Result<(), BadRequest> {
        let Some(text) = self.keys.get("text") else { return Ok(()) };
        let text = RequestObject::of(text, "text".to_owned())?;
        let Some(format) = text.get("format") else { return Ok(()) };
        let format_at = RequestObject::of(format, text.at("format"))?;
        let response_format = match format_at.text("type")? {
            "text" => return Ok(()),
            "json_object" => json!({"type": "json_object"}),
            "json_schema" => {
                let mut schema = format.as_object().cloned().unwrap_or_default();
                // Chat's form is the same without the type and without `null` members.
                schema.shift_remove("type");
                schema.retain(|_, value| !value.is_null());
                json!({"type": "json_schema", "json_schema": schema})
            }
            other => {
                return Err(format_at.refuse(format_args!(
                    "the format {other:?} is not one of text, json_schema and json_object"
                )));
            }
        };
        chat.insert("response_format".to_owned(), response_format);
        Ok(())
    }

    fn reasoning(&self, chat: &mut Map<String, Value>) -> Result<(), BadRequest> {
        let Some(reasoning) = self.keys.get("reasoning") else { return Ok(()) };
        let reasoning = RequestObject::of(reasoning, "reasoning".to_owned())?;
        if let Some(effort) = reasoning.optional_text("effort")? {
            chat.insert("reasoning_effort".to_owned(), effort.into());
        }
        Ok(())
    }

    fn includes_carried_reasoning(&self) -> Result<bool, BadRequest> {
        let mut carries_reasoning = false;
        for (wanted, at) in self.keys.members("include")? {
            match wanted.as_str() {
                Some("reasoning.encrypted_content") => carries_reasoning = true,
                Some("message.output_text.logprobs") => {
                    let message =
                        "this dialect returns no logprobs (they are in the trial's record): leave it out";
                    return Err(BadRequest::at(at, message));
                }
                Some(other) if INCLUDED_WITHOUT_EFFECT.contains(&other) => {}
                _ => return Err(BadRequest::at(at, format!("{wanted} is nothing that can be included"))),
            }
        }
        Ok(carries_reasoning)
    }
}

/// Returns the reason why a key is rejected, and the remedy.
fn refusal(key: &str) -> String {
    match key {
        "conversation" => {
            "stored conversations are not supported: send previous_response_id, or the whole input".to_owned()
        }
        "prompt" => "stored prompt templates are not supported: send instructions and input".to_owned(),
        "context_management" => {
            "nothing changes a conversation here: leave context_management out, and compact in the agent"
                .to_owned()
        }
        _ => format!("{key:?} is not known here for responses: leave it out"),
    }
}
