//! Translates `POST /v1/messages/count_tokens`: vLLM's `/tokenize` counts the prompt that the same request would have.

use serde::Serialize;
use serde_json::{Map, Value};

use super::members::RequestMembers;
use super::request::{nothing_else, prompt};
use crate::dialect::adapter;
use crate::dialect::bad_request::BadRequest;

/// The keys of a chat request that `/tokenize` accepts by the same name.
const OF_THE_PROMPT: [&str; 5] =
    ["model", "messages", "tools", "add_generation_prompt", "continue_final_message"];

#[derive(Serialize)]
struct Counted {
    input_tokens: u64,
}

/// Translates the body to a request for `/tokenize`.
///
/// # Errors
/// Returns an error for an invalid body, an unknown key, or a key that cannot be translated.
pub(crate) fn count_request(body: &str) -> Result<Map<String, Value>, BadRequest> {
    let mut members = RequestMembers::scan(body)?;
    let mut chat = Map::new();
    chat.insert("model".into(), members.require::<String>("model")?.into());
    prompt(&mut members, &mut chat)?;
    nothing_else(members)?;
    let mut template = match chat.remove("chat_template_kwargs") {
        Some(Value::Object(template)) => template,
        _ => Map::new(),
    };
    // vLLM converts the effort of chat requests in this way, and `/tokenize` has no effort.
    if let Some(effort) = chat.remove("reasoning_effort") {
        template.entry("enable_thinking").or_insert_with(|| (effort != "none").into());
        template.insert("reasoning_effort".into(), effort);
    }
    chat.retain(|key, _| OF_THE_PROMPT.contains(&key.as_str()));
    if !template.is_empty() {
        chat.insert("chat_template_kwargs".into(), template.into());
    }
    Ok(chat)
}

/// Translates the answer of `/tokenize`. Returns `None` if it contains no count.
pub(crate) fn count_answer(tokenized: &[u8]) -> Option<Vec<u8>> {
    let input_tokens = adapter::token_count(tokenized)?;
    serde_json::to_vec(&Counted { input_tokens }).ok()
}
