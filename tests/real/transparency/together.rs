//! The parts of two answers that must be equal, and the assembly of streams for the comparison.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Removes the fields that differ between any two answers.
pub(super) fn comparable(mut answer: Value) -> Value {
    for key in ["id", "created", "system_fingerprint"] {
        answer.as_object_mut().unwrap().remove(key);
    }
    for choice in answer["choices"].as_array_mut().into_iter().flatten() {
        for part in ["message", "delta"] {
            for call in choice
                .pointer_mut(&format!("/{part}/tool_calls"))
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                call.as_object_mut().unwrap().remove("id");
            }
        }
    }
    answer
}

/// An assembled stream. It is compared as a whole, because the boundaries of vLLM's chunks are not deterministic.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Whole {
    choices: BTreeMap<u64, Map<String, Value>>,
    usage: Vec<Value>,
    prompt_token_ids: Vec<Value>,
    errors: Vec<Value>,
    pub(super) is_done: bool,
}

pub(super) fn put_together(stream: &str) -> Whole {
    let mut whole = Whole::default();
    // The stream is read by lines, because a keep-alive of the proxy is a comment in front of the next event.
    for data in stream.lines().filter_map(|line| line.strip_prefix("data: ")) {
        assert!(!whole.is_done, "nothing comes after [DONE]");
        if data == "[DONE]" {
            whole.is_done = true;
            continue;
        }
        let chunk = comparable(serde_json::from_str(data).unwrap());
        whole.prompt_token_ids.extend(chunk.get("prompt_token_ids").cloned());
        let Some(choices) = chunk["choices"].as_array() else {
            whole.errors.push(chunk);
            continue;
        };
        if choices.is_empty() {
            // With continuous usage every chunk has one, and the number of chunks is not deterministic.
            whole.usage.extend(chunk.get("usage").cloned().map(without_count_of_reasoning));
        }
        for choice in choices {
            let joined = whole.choices.entry(choice["index"].as_u64().unwrap()).or_default();
            for (key, value) in choice.as_object().unwrap().iter().filter(|(key, _)| *key != "index") {
                join(joined.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
    whole
}

/// Removes the count of reasoning tokens, which depends on the boundaries of vLLM's chunks: its parser engine counts
/// the tokens of a chunk with text, and a token that is part of a character has none.
fn without_count_of_reasoning(mut usage: Value) -> Value {
    if let Some(count) = usage.pointer_mut("/completion_tokens_details/reasoning_tokens") {
        *count = Value::Null;
    }
    usage
}

/// Appends texts and lists, joins objects member by member, and replaces anything else.
fn join(joined: &mut Value, part: &Value) {
    if let (Value::Null, Value::Array(_)) = (&*joined, part) {
        // The list starts empty, because one chunk can hold several pieces of the same tool call.
        *joined = Value::Array(Vec::new());
    }
    match (&mut *joined, part) {
        (_, Value::Null) => {}
        (Value::String(text), Value::String(more)) => text.push_str(more),
        (Value::Array(items), Value::Array(more)) if more.iter().any(|item| item.get("index").is_some()) => {
            for item in more {
                match items.iter_mut().find(|known| known["index"] == item["index"]) {
                    Some(known) => {
                        let index = known["index"].clone();
                        join(known, item);
                        known["index"] = index;
                    }
                    None => items.push(item.clone()),
                }
            }
        }
        (Value::Array(items), Value::Array(more)) => items.extend(more.iter().cloned()),
        (Value::Object(members), Value::Object(more)) => {
            for (key, value) in more {
                join(members.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (joined, part) => *joined = part.clone(),
    }
}
