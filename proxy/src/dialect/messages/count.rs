//! `POST /v1/messages/count_tokens`: vLLM's `/tokenize` counts the prompt that the same request would have.

use serde::Serialize;
use serde_json::{Map, Value};

use super::members::RequestMembers;
use super::request::{nothing_else, prompt};
use crate::dialect::adapter;
use crate::dialect::bad_request::BadRequest;

/// What of a chat request `/tokenize` takes by the same name.
const OF_THE_PROMPT: [&str; 5] =
    ["model", "messages", "tools", "add_generation_prompt", "continue_final_message"];

#[derive(Serialize)]
struct Counted {
    input_tokens: u64,
}

/// Makes the body of `/tokenize`.
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
    // As vLLM does for a chat request; `/tokenize` knows no effort.
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

/// Makes the agent's answer of `/tokenize`'s; none if that is not one.
pub(crate) fn count_answer(tokenized: &[u8]) -> Option<Vec<u8>> {
    let input_tokens = adapter::token_count(tokenized)?;
    serde_json::to_vec(&Counted { input_tokens }).ok()
}
