//! Translates a Gemini request to a chat request.

use serde_json::{Map, Value, json};

use super::contents::ContentsReader;
use super::fields::ObjectFields;
use super::stream::GeminiAdapter;
use super::{generation, tools};
use crate::dialect::adapter;
use crate::dialect::bad_request::BadRequest;
use crate::dialect::route::Delivery;

/// A chat request for upstream, and the adapter for its answer.
#[derive(Debug)]
pub(crate) struct Translated {
    pub(crate) chat: Map<String, Value>,
    pub(crate) back: GeminiAdapter,
}

/// Keys for Google's own filters and accounting, and `model`, which the path states.
const WITHOUT_EFFECT: [&str; 5] = ["safetySettings", "labels", "model", "store", "serviceTier"];

/// Translates the body of a request for `model`.
///
/// # Errors
/// Returns an error for an invalid body, an unknown field, or a field that cannot be translated.
pub(crate) fn translate(body: &str, model: &str, delivery: Delivery) -> Result<Translated, BadRequest> {
    let mut fields = ObjectFields::read("", body)?;
    fields.without_effect(&WITHOUT_EFFECT);
    fields.refuse(&["cachedContent"], "names content that Google's servers store: send it in contents")?;
    let mut chat = Map::new();
    chat.insert("model".to_owned(), model.into());
    chat.insert("messages".to_owned(), messages(&mut fields)?);
    tools::carry_over(&mut fields, &mut chat)?;
    let wanted = generation::carry_over(&mut fields, &mut chat)?;
    fields.end()?;
    let is_stream = delivery != Delivery::Whole;
    chat.insert("stream".to_owned(), is_stream.into());
    // Without usage in the stream, the last chunk would lack its token counts.
    if is_stream {
        chat.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    Ok(Translated { chat, back: GeminiAdapter::new(delivery, model, wanted) })
}

/// Translates a token count to a request for upstream's `/tokenize`. The body is that of a call, or contains one in
/// `generateContentRequest`.
pub(crate) fn count(body: &str, model: &str) -> Result<Map<String, Value>, BadRequest> {
    let mut fields = ObjectFields::read("", body)?;
    if let Some(request) = fields.raw("generateContentRequest") {
        fields.end()?;
        return count(request.get(), model);
    }
    let mut chat = translate(body, model, Delivery::Whole)?.chat;
    let effort = chat.remove("reasoning_effort");
    // `/tokenize` has no `reasoning_effort`. This is the form that vLLM gives to it for the template.
    if let Some(effort) = effort {
        let kwargs = chat.entry("chat_template_kwargs").or_insert_with(|| json!({}));
        if let Value::Object(kwargs) = kwargs {
            kwargs.entry("enable_thinking").or_insert_with(|| (effort != "none").into());
            kwargs.entry("reasoning_effort").or_insert(effort);
        }
    }
    chat.retain(|key, _| matches!(key.as_str(), "model" | "messages" | "tools" | "chat_template_kwargs"));
    Ok(chat)
}

/// Translates the answer of `/tokenize` to one of `countTokens`. Returns `None` if it contains no count.
pub(crate) fn count_answer(answer: &[u8]) -> Option<Vec<u8>> {
    let count = adapter::token_count(answer)?;
    Some(json!({"totalTokens": count}).to_string().into())
}

fn messages(fields: &mut ObjectFields<'_>) -> Result<Value, BadRequest> {
    let mut conversation = ContentsReader::default();
    conversation.system(fields)?;
    let contents = fields.objects("contents")?;
    if contents.is_empty() {
        return Err(fields.fault("contents", "is missing: give at least one turn"));
    }
    for content in contents {
        conversation.content(content)?;
    }
    Ok(conversation.into_messages().into())
}

#[cfg(test)]
mod tests;
