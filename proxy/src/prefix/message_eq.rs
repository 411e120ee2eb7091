//! The rules by which two chat messages count as the same.
//!
//! Agents send messages back in their own spelling. Two messages are the same if they differ only in details that no
//! template shows or no reader would notice:
//! - `null` and `""`;
//! - the order of keys and the white space in tool arguments, and the spelling of their numbers;
//! - white space around an answer, the name of an answer, and its division into parts;
//! - ids of tool calls;
//! - members that vLLM drops (`renderers/chat_utils.py`, `_parse_chat_message_content`).
//!
//! The classification of the rendered answer later shows whether the template uses its name or parts. Reasoning is
//! compared separately, because most agents do not send it back.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use super::fingerprint::Fingerprint;
use crate::wire::json_scan::Cursor;

/// The compared content of a message.
#[derive(Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) role: Box<str>,
    /// The fingerprint of the members that must be equal.
    pub(super) meaning: Fingerprint,
    /// The fingerprint of the reasoning without the white space around it, or `None` if there is no reasoning.
    pub(super) reasoning: Option<Fingerprint>,
    /// Members that a plain message lacks.
    pub(super) unusual: Vec<Box<str>>,
}

impl Reading {
    /// Reads any message.
    pub(super) fn of(message: &Map<String, Value>) -> Option<Self> {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        let unusual = message.iter().filter(|(key, value)| is_unusual(key, value));
        Some(Self {
            role: role.into(),
            meaning: meaning(message),
            reasoning: reasoning(message).map(Fingerprint::of),
            unusual: unusual.map(|(key, _)| key.as_str().into()).collect(),
        })
    }

    /// Reads a message with only a role and a text, without building a JSON value. Returns `None` for all other
    /// messages. Also `None` for an answer, because the white space around its text is ignored.
    pub(super) fn of_plain(text: &str) -> Option<Self> {
        let (mut role, mut content) = (None, None);
        let mut cursor = Cursor::new(text);
        cursor.object(|cursor, key| {
            match key {
                "role" => role = Some(cursor.plain_string()?),
                "content" => content = Some(cursor.value()?),
                _ => return None,
            }
            Some(())
        })?;
        let (role, content) = (role?, content?);
        let is_plain = cursor.is_at_end()
            && !matches!(role, "" | "assistant")
            && content.starts_with('"')
            && content != "\"\""
            && has_one_spelling(content);
        let meaning = || {
            let role = Fingerprint::of("role").then(Fingerprint::of(&format!("\"{role}\"")));
            let content = Fingerprint::of("content").then(Fingerprint::of(content));
            Fingerprint::NONE.then(content).then(role)
        };
        is_plain.then(|| Self { role: role.into(), meaning: meaning(), reasoning: None, unusual: Vec::new() })
    }
}

/// Returns whether a JSON string has no `\u` or `\/` escape. Then its spelling is that of `serde_json`.
fn has_one_spelling(string: &str) -> bool {
    let mut rest = string;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        match rest.as_bytes().get(at + 1) {
            Some(b'u' | b'/') | None => return false,
            Some(_) => rest = rest.get(at + 2..).unwrap_or_default(),
        }
    }
    true
}

fn is_unusual(key: &str, value: &Value) -> bool {
    match (key, value) {
        (_, Value::Null) | ("role" | "tool_call_id" | "id", _) => false,
        ("content", value) => value.is_array(),
        (_, Value::Array(items)) => !items.is_empty(),
        (_, Value::String(text)) => !text.is_empty(),
        _ => true,
    }
}

fn reasoning(message: &Map<String, Value>) -> Option<&str> {
    // vLLM's name since 0.12, and the name before 0.12.
    let member =
        message.get("reasoning").or_else(|| message.get("reasoning_content")).and_then(Value::as_str);
    let in_content = || match message.get("content") {
        Some(Value::String(text)) if is_answer(message) => {
            split_reasoning(text).map(|(reasoning, _)| reasoning)
        }
        _ => None,
    };
    let text = member.or_else(in_content)?.trim();
    (!text.is_empty()).then_some(text)
}

/// Splits an answer's text into the reasoning that it begins with and the rest. Agents that store the raw text send
/// both back as content.
fn split_reasoning(text: &str) -> Option<(&str, &str)> {
    text.trim_start().strip_prefix("<think>")?.split_once("</think>")
}

fn is_answer(message: &Map<String, Value>) -> bool {
    message.get("role").and_then(Value::as_str) == Some("assistant")
}

/// Returns the fingerprint of the members that must be equal, each in one spelling.
fn meaning(message: &Map<String, Value>) -> Fingerprint {
    let is_answer = is_answer(message);
    let mut same = Vec::new();
    for (key, value) in message {
        let value = match key.as_str() {
            "content" => content(value, is_answer),
            "tool_calls" => Value::Array(value.as_array().into_iter().flatten().map(tool_call).collect()),
            // An answer has no name, but some agents add one when they send the answer back.
            "name" if is_answer => continue,
            "role" | "name" | "task" | "tools" => value.clone(),
            // Reasoning is compared separately, ids have no meaning, and vLLM passes no other member to templates.
            _ => continue,
        };
        if !is_nothing(&value) {
            same.push((key, in_one_order(value)));
        }
    }
    // Clients write the members in any order.
    same.sort_unstable_by_key(|(key, _)| *key);
    same.into_iter().fold(Fingerprint::NONE, |all, (key, value)| {
        all.then(Fingerprint::of(key).then(Fingerprint::of(&value.to_string())))
    })
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Returns the same value for a text and for a list with only that text. An answer loses its reasoning and the white
/// space around it.
fn content(content: &Value, is_answer: bool) -> Value {
    if is_answer && let Some(text) = answer_text(content) {
        let said = split_reasoning(&text).map_or(&*text, |(_, said)| said);
        return said.trim().into();
    }
    let only_text = content.as_array().and_then(|parts| match parts.as_slice() {
        [part] if part.get("type").and_then(Value::as_str) == Some("text") => part.get("text")?.as_str(),
        _ => None,
    });
    match only_text.or_else(|| content.as_str()) {
        Some(text) => text.into(),
        None => content.as_array().map_or_else(|| content.clone(), |parts| parts.iter().map(part).collect()),
    }
}

/// Returns the text of an answer, joined from all its parts. `None` if a part is not text.
fn answer_text(content: &Value) -> Option<Cow<'_, str>> {
    if let Some(text) = content.as_str() {
        return Some(text.into());
    }
    let text = |part: &'_ Value| -> Option<String> {
        let is_text = part.get("type").and_then(Value::as_str) == Some("text");
        Some(part.get("text").filter(|_| is_text)?.as_str()?.to_owned())
    };
    content.as_array()?.iter().map(text).collect::<Option<String>>().map(Cow::Owned)
}

/// Returns the text of a text part without its other members: agents move `cache_control` from turn to turn.
fn part(part: &Value) -> Value {
    match (part.get("type").and_then(Value::as_str), part.get("text")) {
        (Some("text"), Some(text)) => text.clone(),
        _ => part.clone(),
    }
}

/// Returns a tool call without its id: its name, and its arguments as values.
fn tool_call(call: &Value) -> Value {
    let Some(function) = call.get("function") else { return call.clone() };
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        // Arguments that are not JSON are compared as text.
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_else(|_| text.clone().into()),
        Some(Value::Null) | None => Value::Object(Map::new()),
        Some(value) => value.clone(),
    };
    let name = function.get("name").cloned().unwrap_or_default();
    Value::Array(vec![name, in_one_spelling(arguments)])
}

/// Sorts the keys of every object and writes numbers by their value in JavaScript. JavaScript writes `1.0` and `1e0` as
/// `1`, and reads an integer beyond 2^53 as the nearest double.
pub(super) fn in_one_spelling(value: Value) -> Value {
    in_one_order(with_numbers_by_value(value))
}

fn with_numbers_by_value(value: Value) -> Value {
    match value {
        Value::Number(number) => by_value(&number),
        Value::Object(members) => {
            members.into_iter().map(|(key, value)| (key, with_numbers_by_value(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(with_numbers_by_value).collect(),
        plain => plain,
    }
}

fn by_value(number: &Number) -> Value {
    // 2^53: a double represents every integer below it.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let Some(double) = number.as_f64() else { return Value::Number(number.clone()) };
    #[expect(clippy::cast_possible_truncation, reason = "it is an integer of at most 53 bits")]
    if double.fract() == 0.0 && double.abs() < EXACT { (double as i64).into() } else { double.into() }
}

/// Sorts the keys of every object.
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

/// Returns the fingerprint of a JSON value, independent of white space and of the order of keys.
pub(super) fn meaning_of(value: Value) -> Fingerprint {
    Fingerprint::of(&in_one_order(value).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn same(a: &Value, b: &Value) -> bool {
        let meaning = |message: &Value| Reading::of(message.as_object().unwrap()).unwrap().meaning;
        meaning(a) == meaning(b)
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
        for (sampled, rewritten) in [
            ("1.0", "1"),
            ("1e3", "1000"),
            ("-0.0", "0"),
            ("9007199254740993", "9007199254740992"),
            ("1e300", "1E300"),
        ] {
            let [sampled, rewritten] = [sampled, rewritten].map(|number| format!(r#"{{"x":[{number}]}}"#));
            assert!(same(&call("a", json!(sampled)), &call("a", json!(rewritten))), "{sampled}");
        }
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
        assert!(same(&answer(json!("a")), &json!({"role": "assistant", "name": "coder", "content": "a"})));
        let parts = json!([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]);
        assert!(same(&answer(json!("a b")), &answer(parts)));
        let raw = answer(json!("<think>\nwhy\n</think>\n\na"));
        assert!(same(&answer(json!("a")), &raw));
        let reasoning = Reading::of(raw.as_object().unwrap()).unwrap().reasoning;
        assert_eq!(reasoning, Some(Fingerprint::of("why")));
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
        assert!(!same(&call(r#"{"x":1}"#), &call(r#"{"x":1.5}"#)));
        assert!(!same(&call(r#"{"x":1}"#), &call(r#"{"x":"1"}"#)));
        assert!(!same(&call("{not json"), &call("{not json }")));
        assert!(!same(&user(json!("a")), &json!({"role": "user", "content": "a", "name": "n"})));
    }

    proptest! {
        #[test]
        fn the_short_way_reads_what_the_long_way_reads(role in "(user|tool|assistant|[a-z\"]{0,2})", content in r#"[a-z"\\/\n\u{7}é]{0,9}"#, first in any::<bool>()) {
            let (role, content) = (("role", role), ("content", content));
            let members = if first { [role, content] } else { [content, role] };
            let json: Map<String, Value> = members.map(|(key, text)| (key.to_owned(), text.into())).into_iter().collect();
            let text = Value::Object(json.clone()).to_string();
            if let Some(short) = Reading::of_plain(&text) {
                prop_assert_eq!(Some(short), Reading::of(&json));
            }
        }

        #[test]
        fn the_order_of_keys_means_nothing(keys in prop::collection::hash_map("[a-d]{1,2}", ".{0,3}", 0..5)) {
            let forth: Map<String, Value> = keys.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
            let back: Map<String, Value> = forth.clone().into_iter().rev().collect();
            prop_assert_eq!(meaning_of(Value::Object(forth)), meaning_of(Value::Object(back)));
        }
    }

    #[test]
    fn fuzz_message_eq() {
        rolltap_testing::fuzz!("message_eq", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            let Ok(json) = serde_json::from_str::<Map<String, Value>>(text) else { return };
            let long = Reading::of(&json);
            if let Some(short) = Reading::of_plain(text) {
                assert_eq!(Some(short), long);
            }
            // The order of keys has no meaning.
            let reversed = json.into_iter().rev().collect();
            assert_eq!(Reading::of(&reversed).map(|read| read.meaning), long.map(|read| read.meaning));
        });
    }
}
