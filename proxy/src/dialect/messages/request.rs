//! Translates a Messages request to a chat request.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::MessagesAdapter;
use super::conversation::conversation;
use super::members::{RequestMembers, refusal};
use super::reasoning::reasoning;
use super::tools::tools;
use crate::dialect::bad_request::BadRequest;
use crate::dialect::sampling;

/// A chat request for upstream, and the adapter for its answer.
#[derive(Debug)]
pub(crate) struct Translated {
    pub(crate) chat: Map<String, Value>,
    pub(crate) back: MessagesAdapter,
}

/// Sampling keys with the same name in chat completions: Anthropic's own, and vLLM's keys for thinking.
const ALIKE: [&str; 4] = ["temperature", "top_p", "thinking_token_budget", "reasoning_effort"];

/// Keys without meaning for a local model: user, cost, region and speed.
const WITHOUT_EFFECT: [&str; 9] = [
    "metadata",
    "service_tier",
    "inference_geo",
    "speed",
    "betas",
    "anthropic_beta",
    "anthropic_version",
    "cache_control",
    "diagnostics",
];

/// Features that only Anthropic's servers implement.
const SERVER_SIDE: [&str; 2] = ["mcp_servers", "container"];

/// Edits that only shorten the prompt. They have no effect here, so the model sees the whole prompt.
const HARMLESS_EDITS: [&str; 2] = ["clear_thinking_20251015", "clear_tool_uses_20250919"];

/// Translates the body of `POST /v1/messages`.
///
/// # Errors
/// Returns an error for an invalid body, an unknown key, or a key that cannot be translated.
pub(crate) fn translate(body: &str) -> Result<Translated, BadRequest> {
    let mut members = RequestMembers::scan(body)?;
    let mut chat = Map::new();
    let model: String = members.require("model")?;
    chat.insert("model".into(), model.clone().into());
    prompt(&mut members, &mut chat)?;
    chat.insert("max_tokens".into(), members.require::<u64>("max_tokens")?.into());
    let stops: Vec<String> = members.take_as("stop_sequences")?.unwrap_or_default();
    if !stops.is_empty() {
        chat.insert("stop".into(), stops.clone().into());
    }
    for key in sampling::EXTRAS.into_iter().chain(ALIKE) {
        chat.extend(members.take_as::<Value>(key)?.map(|value| (key.to_owned(), value)));
    }
    if members.take_as("stream")?.unwrap_or(false) {
        chat.insert("stream".into(), true.into());
        chat.insert("stream_options".into(), json!({"include_usage": true}));
    }
    nothing_else(members)?;
    Ok(Translated { chat, back: MessagesAdapter::new(model, stops) })
}

/// Translates the parts of a request that affect the prompt.
pub(super) fn prompt(
    members: &mut RequestMembers<'_>,
    chat: &mut Map<String, Value>,
) -> Result<(), BadRequest> {
    let system = members.take("system");
    let conversation = conversation(system, members.require("messages")?)?;
    chat.insert("messages".into(), conversation.messages.into());
    // The model continues the assistant's last turn only if the template adds no start of a new turn.
    if conversation.is_prefilled {
        chat.insert("add_generation_prompt".into(), false.into());
        chat.insert("continue_final_message".into(), true.into());
    }
    tools(members, chat)?;
    reasoning(members, chat)
}

#[derive(Deserialize)]
struct ContextManagement {
    #[serde(default)]
    edits: Vec<Edit>,
}

#[derive(Deserialize)]
struct Edit {
    #[serde(rename = "type")]
    kind: String,
}

/// Rejects the remaining keys, except those without effect.
pub(super) fn nothing_else(mut members: RequestMembers<'_>) -> Result<(), BadRequest> {
    for key in WITHOUT_EFFECT {
        members.take(key);
    }
    for key in SERVER_SIDE {
        // An empty list asks for nothing, so it is accepted.
        if members.take(key).is_some_and(|value| value.get() != "[]") {
            return Err(refusal(
                key,
                "asks for something that only Anthropic's own servers have: leave it out",
            ));
        }
    }
    let management: Option<ContextManagement> = members.take_as("context_management")?;
    for (at, edit) in management.iter().flat_map(|management| &management.edits).enumerate() {
        if !HARMLESS_EDITS.contains(&edit.kind.as_str()) {
            let fault = format!("is {:?}, which is not known here: leave it out", edit.kind);
            return Err(refusal(&format!("context_management.edits[{at}]"), &fault));
        }
    }
    let unknown =
        |key: &str| refusal(key, "is not a key of the Messages API that is known here: leave it out");
    members.left().map_or(Ok(()), |key| Err(unknown(key)))
}
