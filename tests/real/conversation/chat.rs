//! Chat completions.

use serde_json::{Value, json};

use super::{Answer, ToolCall, text};

pub(super) fn request(system: &str, turns: &[Value]) -> Value {
    let mut messages = vec![json!({"role": "system", "content": system})];
    messages.extend_from_slice(turns);
    json!({"messages": messages})
}

pub(super) fn result(call: &ToolCall, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": call.id, "content": text})
}

pub(super) fn whole(answer: &Value, keep_reasoning: bool) -> Answer {
    let message = &answer["choices"][0]["message"];
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    made(message["content"].clone(), text(&message["reasoning"]).to_owned(), calls, keep_reasoning)
}

pub(super) fn streamed(chunks: &[Value], keep_reasoning: bool) -> Answer {
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for delta in chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]) {
        content.push_str(text(&delta["content"]));
        reasoning.push_str(text(&delta["reasoning"]));
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            add(&mut calls, piece);
        }
    }
    // Clients send `null` for a content without pieces.
    let content = if content.is_empty() { Value::Null } else { json!(content) };
    made(content, reasoning, calls, keep_reasoning)
}

fn add(calls: &mut Vec<Value>, piece: &Value) {
    let at = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
    if calls.len() <= at {
        calls.push(json!({"id": piece["id"], "type": "function",
            "function": {"name": piece["function"]["name"], "arguments": ""}}));
    }
    let whole = text(&calls[at]["function"]["arguments"]).to_owned() + text(&piece["function"]["arguments"]);
    calls[at]["function"]["arguments"] = json!(whole);
}

fn made(content: Value, reasoning: String, calls: Vec<Value>, keep_reasoning: bool) -> Answer {
    let mut turn = json!({"role": "assistant", "content": content});
    if content.is_null() && calls.is_empty() {
        // vLLM rejects an answer without content and calls.
        turn["content"] = json!("");
    }
    if keep_reasoning && !reasoning.is_empty() {
        turn["reasoning"] = json!(reasoning);
    }
    let named = |call: &Value| ToolCall {
        id: text(&call["id"]).to_owned(),
        name: text(&call["function"]["name"]).to_owned(),
    };
    let named = calls.iter().map(named).collect();
    if !calls.is_empty() {
        turn["tool_calls"] = json!(calls);
    }
    Answer { turn: vec![turn], reasoning, calls: named }
}
