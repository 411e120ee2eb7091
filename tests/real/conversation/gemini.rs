//! Gemini's generateContent.

use serde_json::{Map, Value, json};

use super::{Answer, ToolCall, text};

pub(super) fn path(model: &str, stream: bool) -> String {
    let method = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
    format!("/v1beta/models/{model}:{method}")
}

pub(super) fn request(system: &str, turns: &[Value]) -> Value {
    json!({"systemInstruction": {"parts": [{"text": system}]}, "contents": turns,
        "generationConfig": {"thinkingConfig": {"includeThoughts": true}}})
}

pub(super) fn config(body: &mut Map<String, Value>) -> &mut Map<String, Value> {
    body["generationConfig"].as_object_mut().unwrap()
}

pub(super) fn result(call: &ToolCall, text: &str) -> Value {
    let mut response = json!({"name": call.name, "response": {"output": text}});
    if !call.id.is_empty() {
        response["id"] = json!(call.id);
    }
    json!({"functionResponse": response})
}

/// Joins the parts of all chunks, or returns those of the one answer.
pub(super) fn answer(chunks: &[Value], keep_reasoning: bool) -> Answer {
    let parts = chunks.iter().flat_map(|chunk| chunk["candidates"][0]["content"]["parts"].as_array());
    let mut parts: Vec<Value> = parts.flatten().cloned().collect();
    let thought = |part: &Value| part["thought"] == true;
    let reasoning = parts.iter().filter(|part| thought(part)).map(|part| text(&part["text"])).collect();
    let called = parts.iter().map(|part| &part["functionCall"]).filter(|call| call.is_object());
    let calls = called
        .map(|call| ToolCall { id: text(&call["id"]).to_owned(), name: text(&call["name"]).to_owned() })
        .collect();
    if !keep_reasoning {
        parts.retain(|part| !thought(part));
        for part in &mut parts {
            part.as_object_mut().unwrap().remove("thoughtSignature");
        }
    }
    if parts.is_empty() {
        parts.push(json!({"text": ""}));
    }
    Answer { turn: vec![json!({"role": "model", "parts": parts})], reasoning, calls }
}
