//! One chat message of a conversation: as it was sent, and what of it must be equal for two to be the same.
//!
//! Agents spell what they send back in their own way. Two messages are the same where they differ only in what no
//! template shows or no reader would notice: `null` and `""`, the order of keys and the white space in tool arguments,
//! white space around an answer, ids of tool calls, members that vLLM drops (`renderers/chat_utils.py`,
//! `_parse_chat_message_content`). Reasoning is compared apart, because most agents do not send it back.

use std::fmt;
use std::sync::OnceLock;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::render::renderer::{self, Renderer};

/// Says that two texts are equal without keeping either: the first 16 bytes of their SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Of nothing yet: what a conversation begins with.
    pub(super) const NONE: Self = Self([0; 16]);

    /// Of a text.
    pub(super) fn of(text: &str) -> Self {
        Self::of_digest(Sha256::new().chain_update(text))
    }

    /// Of what this one is of, followed by what `next` is of.
    pub(super) fn then(self, next: Self) -> Self {
        Self::of_digest(Sha256::new().chain_update(self.0).chain_update(next.0))
    }

    fn of_digest(digest: Sha256) -> Self {
        let digest: [u8; 32] = digest.finalize().into();
        Self(*digest.first_chunk().unwrap_or(&[0; 16]))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A message as it is kept.
#[derive(Debug)]
pub(super) struct Message {
    json: Value,
    /// Of the text it came in.
    pub(super) as_sent: Fingerprint,
    /// Of what must be equal.
    pub(super) meaning: Fingerprint,
    /// Of an assistant's reasoning without the white space around it; none where it has none.
    reasoning: Option<Fingerprint>,
    /// As the template reads it, once it has been asked for.
    rendered: OnceLock<Option<renderer::Message>>,
}

impl Message {
    /// Reads a message. None if it is no JSON object: the server will say what is wrong.
    pub(super) fn read(text: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(text).ok()?;
        Self::new(json, Fingerprint::of(text))
    }

    /// An answer, as a client would send it back.
    pub(super) fn of_answer(json: Value) -> Option<Self> {
        let as_sent = Fingerprint::of(&json.to_string());
        Self::new(json, as_sent)
    }

    fn new(json: Value, as_sent: Fingerprint) -> Option<Self> {
        let object = json.as_object()?;
        let meaning = Fingerprint::of(&meaning(object).to_string());
        let reasoning = reasoning(object).map(Fingerprint::of);
        Some(Self { as_sent, meaning, reasoning, rendered: OnceLock::new(), json })
    }

    /// As a chat request has it.
    pub(super) fn json(&self) -> &Value {
        &self.json
    }

    pub(super) fn role(&self) -> &str {
        self.json.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    /// Its text, where that is one.
    pub(super) fn text(&self) -> Option<&str> {
        match self.json.get("content")? {
            Value::String(text) => Some(text),
            Value::Array(parts) => match parts.as_slice() {
                [only] => only.get("text")?.as_str(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether some text of it contains this one.
    pub(super) fn says(&self, words: &str) -> bool {
        match self.json.get("content") {
            Some(Value::String(text)) => text.contains(words),
            Some(Value::Array(parts)) => {
                let text =
                    |part: &Value| part.get("text").and_then(Value::as_str).map(|text| text.contains(words));
                parts.iter().filter_map(text).any(|says| says)
            }
            _ => false,
        }
    }

    /// Whether the reasoning that was sent back, if any was, is that of this message.
    pub(super) fn admits_reasoning_of(&self, sent_back: &Self) -> bool {
        sent_back.reasoning.is_none() || sent_back.reasoning == self.reasoning
    }

    /// As the template reads it. None where it cannot be read: the server will say why.
    pub(super) fn rendered(&self, renderer: &Renderer) -> Option<renderer::Message> {
        let read = || renderer.message(&self.json).ok();
        // What is kept is for files that are read once. Servers take the JSON, which is here.
        if renderer.asks() { read() } else { self.rendered.get_or_init(read).clone() }
    }
}

fn reasoning(message: &Map<String, Value>) -> Option<&str> {
    // vLLM's name since 0.12, and the one before it.
    let text = message.get("reasoning").or_else(|| message.get("reasoning_content"))?.as_str()?.trim();
    (!text.is_empty()).then_some(text)
}

/// What must be equal, in one spelling.
fn meaning(message: &Map<String, Value>) -> Value {
    let is_answer = message.get("role").and_then(Value::as_str) == Some("assistant");
    let mut same = Map::new();
    for (key, value) in message {
        let value = match key.as_str() {
            "content" => content(value, is_answer),
            "tool_calls" => Value::Array(value.as_array().into_iter().flatten().map(tool_call).collect()),
            "role" | "name" | "task" | "tools" => value.clone(),
            // Reasoning is compared apart, ids mean nothing, and vLLM tells templates of nothing else.
            _ => continue,
        };
        if !is_nothing(&value) {
            same.insert(key.clone(), in_one_order(value));
        }
    }
    in_one_order(Value::Object(same))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// A text and a list of that one text are the same.
fn content(content: &Value, is_answer: bool) -> Value {
    let only_text = content.as_array().and_then(|parts| match parts.as_slice() {
        [part] if part.get("type").and_then(Value::as_str) == Some("text") => part.get("text")?.as_str(),
        _ => None,
    });
    match only_text.or_else(|| content.as_str()) {
        Some(text) if is_answer => text.trim().into(),
        Some(text) => text.into(),
        None => content.as_array().map_or_else(|| content.clone(), |parts| parts.iter().map(part).collect()),
    }
}

/// A part of a text without what stands beside it: agents move `cache_control` from turn to turn.
fn part(part: &Value) -> Value {
    match (part.get("type").and_then(Value::as_str), part.get("text")) {
        (Some("text"), Some(text)) => text.clone(),
        _ => part.clone(),
    }
}

/// A call of a tool without its id: its name, and its arguments as values.
fn tool_call(call: &Value) -> Value {
    let Some(function) = call.get("function") else { return call.clone() };
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        // What is no JSON is equal by its text.
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_else(|_| text.clone().into()),
        Some(Value::Null) | None => Value::Object(Map::new()),
        Some(value) => value.clone(),
    };
    let name = function.get("name").cloned().unwrap_or_default();
    Value::Array(vec![name, in_one_order(arguments)])
}

/// With the keys of every object in one order.
pub(super) fn in_one_order(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.into_iter().map(|(key, value)| (key, in_one_order(value))).collect();
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(in_one_order).collect()),
        plain => plain,
    }
}

/// Fingerprint of a JSON value, however spelled.
pub(super) fn meaning_of(value: Value) -> Fingerprint {
    Fingerprint::of(&in_one_order(value).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(message: &Value) -> Message {
        Message::read(&message.to_string()).unwrap()
    }

    fn same(a: &Value, b: &Value) -> bool {
        read(a).meaning == read(b).meaning
    }

    #[test]
    fn harmless_spellings_are_the_same_message() {
        let call = |id: &str, arguments: Value| {
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}]})
        };
        assert!(same(&call("a", json!(r#"{"x":1,"y":[2]}"#)), &call("b", json!(r#"{ "y": [2], "x": 1 }"#))));
        assert!(same(&call("a", json!("")), &call("a", json!("{}"))));
        assert!(same(&call("a", json!({"x": 1})), &call("a", json!("{\"x\":1}"))));
        let answer = |content: Value| json!({"role": "assistant", "content": content});
        assert!(same(&answer(json!(" hi\n")), &answer(json!("hi"))));
        assert!(same(&answer(json!("hi")), &answer(json!([{"type": "text", "text": "hi"}]))));
        assert!(same(
            &answer(Value::Null),
            &json!({"content": "", "role": "assistant", "refusal": null, "tool_calls": []})
        ));
        assert!(same(
            &answer(json!("a")),
            &json!({"content": "a", "role": "assistant", "provider_specific_fields": {"refusal": null}})
        ));
        assert!(same(&answer(json!("a")), &json!({"role": "assistant", "reasoning": "r", "content": "a"})));
        let cached = |control: Value| {
            let part = |text: &str| json!({"type": "text", "text": text, "cache_control": control});
            json!({"role": "user", "content": [part("a"), part("b")]})
        };
        assert!(same(&cached(json!({"type": "ephemeral"})), &cached(Value::Null)));
    }

    #[test]
    fn what_has_a_meaning_is_not() {
        let user = |content: Value| json!({"role": "user", "content": content});
        assert!(!same(&user(json!(" hi")), &user(json!("hi"))));
        assert!(!same(&user(json!("hi")), &json!({"role": "system", "content": "hi"})));
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert!(!same(&user(json!("a\nb")), &user(parts)));
        let call = |arguments: &str| json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]});
        assert!(!same(&call(r#"{"x":1}"#), &call(r#"{"x":2}"#)));
        assert!(!same(&call("{not json"), &call("{not json }")));
        assert!(!same(&user(json!("a")), &json!({"role": "user", "content": "a", "name": "n"})));
    }

    #[test]
    fn reasoning_that_is_sent_back_must_be_the_same() {
        let with =
            |reasoning: Value| read(&json!({"role": "assistant", "content": "a", "reasoning": reasoning}));
        let stored = with(json!("because\n"));
        assert!(
            stored.admits_reasoning_of(&with(Value::Null))
                && stored.admits_reasoning_of(&with(json!(" because")))
        );
        assert!(!stored.admits_reasoning_of(&with(json!("why"))));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            let _ = Message::read(&text);
        }

        #[test]
        fn the_order_of_keys_means_nothing(keys in prop::collection::hash_map("[a-d]{1,2}", ".{0,3}", 0..5)) {
            let forth: Map<String, Value> = keys.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
            let back: Map<String, Value> = forth.clone().into_iter().rev().collect();
            prop_assert_eq!(meaning_of(Value::Object(forth)), meaning_of(Value::Object(back)));
        }
    }
}
