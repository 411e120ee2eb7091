//! Tests requests and answers of the dialect by examples and properties.

mod answers;
mod errors;
mod properties;
mod requests;

use serde_json::{Map, Value, json};

use super::answer::MessagesAdapter;
use super::translate;
use crate::dialect::adapter::Translator;
use crate::dialect::chat::completion::ChatCompletion;

/// Returns a request with the fields of `extra` replaced. A `null` removes a field.
fn request(extra: Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn chat(extra: Value) -> Map<String, Value> {
    translate(&request(extra).to_string()).unwrap().chat
}

fn messages(messages: Value) -> Value {
    chat(json!({"messages": messages}))["messages"].clone()
}

fn refusal(extra: Value) -> String {
    translate(&request(extra).to_string()).unwrap_err().to_string()
}

fn back(extra: Value) -> MessagesAdapter {
    translate(&request(extra).to_string()).unwrap().back
}

fn whole(back: &mut MessagesAdapter, answer: &Value) -> Value {
    let text = answer.to_string();
    let answer: ChatCompletion<'_> = serde_json::from_str(&text).unwrap();
    serde_json::from_slice(&back.whole(&answer)).unwrap()
}

/// Returns the events of a stream of these chunks.
fn streamed(back: &mut MessagesAdapter, chunks: &[Value]) -> Vec<Value> {
    let mut out = Vec::new();
    for chunk in chunks {
        let text = chunk.to_string();
        back.chunk(&serde_json::from_str(&text).unwrap(), &mut out);
    }
    back.end(&mut out);
    events(&out)
}

fn events(stream: &[u8]) -> Vec<Value> {
    let stream = std::str::from_utf8(stream).unwrap();
    let event = |text: &str| {
        let (name, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        data
    };
    stream.split_terminator("\n\n").map(event).collect()
}

/// Assembles a stream as Anthropic's SDKs do, and checks the order of its events.
fn assembled(events: &[Value]) -> Value {
    let [start, middle @ .., delta, stop] = events else { panic!("too few events: {events:?}") };
    assert_eq!((&start["type"], &stop["type"]), (&json!("message_start"), &json!("message_stop")));
    let mut message = start["message"].clone();
    let mut blocks: Vec<Value> = Vec::new();
    let mut open: Option<(Value, String)> = None;
    for event in middle {
        assert_eq!(event["index"], blocks.len(), "one block at a time");
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert!(open.is_none());
                open = Some((event["content_block"].clone(), String::new()));
            }
            "content_block_delta" => {
                let (block, json) = open.as_mut().unwrap();
                piece(block, json, &event["delta"]);
            }
            "content_block_stop" => {
                let (mut block, json) = open.take().unwrap();
                if !json.is_empty() {
                    block["input"] =
                        serde_json::from_str(&json).unwrap_or(json!({"unreadable_arguments": json}));
                }
                blocks.push(block);
            }
            other => panic!("{other} among the blocks"),
        }
    }
    assert!(open.is_none());
    message["content"] = blocks.into();
    message["usage"] = delta["usage"].clone();
    for key in ["stop_reason", "stop_sequence"] {
        message[key] = delta["delta"][key].clone();
    }
    message
}

fn piece(block: &mut Value, json: &mut String, delta: &Value) {
    let kind = block["type"].as_str().unwrap().to_owned();
    let mut append = |key: &str| {
        let joined = block[key].as_str().unwrap().to_owned() + delta[key].as_str().unwrap();
        block[key] = joined.into();
    };
    match (delta["type"].as_str().unwrap(), kind.as_str()) {
        ("text_delta", "text") => append("text"),
        ("thinking_delta", "thinking") => append("thinking"),
        ("signature_delta", "thinking") => append("signature"),
        ("input_json_delta", "tool_use") => json.push_str(delta["partial_json"].as_str().unwrap()),
        (delta, block) => panic!("{delta} in {block}"),
    }
}
