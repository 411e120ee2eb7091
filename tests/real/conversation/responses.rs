//! OpenAI responses, for an agent that stores nothing on the server.

use serde_json::{Value, json};

use super::{Answer, ToolCall, text};

pub(super) fn request(system: &str, turns: &[Value]) -> Value {
    json!({"instructions": system, "input": turns, "store": false, "include": ["reasoning.encrypted_content"]})
}

pub(super) fn result(call: &ToolCall, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call.id, "output": text})
}

pub(super) fn streamed(events: &[Value], keep_reasoning: bool) -> Answer {
    let last = events.iter().rfind(|event| event["response"]["output"].is_array()).unwrap();
    whole(&last["response"], keep_reasoning)
}

pub(super) fn whole(answer: &Value, keep_reasoning: bool) -> Answer {
    let mut items = answer["output"].as_array().unwrap().clone();
    let is = |item: &Value, kind: &str| item["type"] == kind;
    let thought = items.iter().filter(|item| is(item, "reasoning"));
    let reasoning = thought.flat_map(|item| item["content"].as_array().into_iter().flatten());
    let reasoning = reasoning.map(|part| text(&part["text"])).collect();
    let called = items.iter().filter(|item| is(item, "function_call"));
    let calls = called
        .map(|item| ToolCall { id: text(&item["call_id"]).to_owned(), name: text(&item["name"]).to_owned() })
        .collect();
    if !keep_reasoning {
        items.retain(|item| !is(item, "reasoning"));
    }
    Answer { turn: items, reasoning, calls }
}
