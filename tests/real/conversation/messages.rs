//! Anthropic messages.

use serde_json::{Value, json};

use super::{Answer, ToolCall, text};

pub(super) fn request(system: &str, turns: &[Value]) -> Value {
    json!({"system": system, "messages": turns})
}

pub(super) fn result(call: &ToolCall, text: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": call.id, "content": text})
}

pub(super) fn whole(answer: &Value, keep_reasoning: bool) -> Answer {
    made(answer["content"].as_array().unwrap().clone(), keep_reasoning)
}

/// Assembles the blocks as the official clients do.
pub(super) fn streamed(events: &[Value], keep_reasoning: bool) -> Answer {
    let mut blocks: Vec<Value> = Vec::new();
    let mut arguments = String::new();
    for event in events {
        match text(&event["type"]) {
            "content_block_start" => {
                blocks.push(event["content_block"].clone());
                arguments.clear();
            }
            "content_block_delta" => add(blocks.last_mut().unwrap(), &mut arguments, &event["delta"]),
            "content_block_stop" if !arguments.is_empty() => {
                blocks.last_mut().unwrap()["input"] = serde_json::from_str(&arguments).unwrap();
            }
            _ => {}
        }
    }
    made(blocks, keep_reasoning)
}

fn add(block: &mut Value, arguments: &mut String, delta: &Value) {
    let member = match text(&delta["type"]) {
        "text_delta" => "text",
        "thinking_delta" => "thinking",
        "signature_delta" => "signature",
        "input_json_delta" => return arguments.push_str(text(&delta["partial_json"])),
        other => panic!("a delta of type {other}"),
    };
    block[member] = json!(text(&block[member]).to_owned() + text(&delta[member]));
}

fn made(mut blocks: Vec<Value>, keep_reasoning: bool) -> Answer {
    let is = |block: &Value, kind: &str| block["type"] == kind;
    let thoughts = blocks.iter().filter(|block| is(block, "thinking"));
    let reasoning = thoughts.map(|block| text(&block["thinking"])).collect();
    let used = blocks.iter().filter(|block| is(block, "tool_use"));
    let calls = used
        .map(|block| ToolCall { id: text(&block["id"]).to_owned(), name: text(&block["name"]).to_owned() })
        .collect();
    if !keep_reasoning {
        blocks.retain(|block| !is(block, "thinking"));
    }
    if blocks.is_empty() {
        blocks.push(json!({"type": "text", "text": ""}));
    }
    Answer { turn: vec![json!({"role": "assistant", "content": blocks})], reasoning, calls }
}
