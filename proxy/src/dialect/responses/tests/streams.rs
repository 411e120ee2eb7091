//! Tests streams, assembled as the official client assembles them.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::answers::TOOLS;
use crate::dialect::adapter::Translator;
use crate::dialect::chat::completion::ChatCompletion;
use crate::dialect::responses::answer::ResponsesAdapter;
use crate::dialect::responses::translate;
use crate::dialect::upstream_error::{Overflow, UpstreamError};

fn back() -> ResponsesAdapter {
    let tools: Value = serde_json::from_str(TOOLS).unwrap();
    let request = json!({"model": "m", "input": "x", "stream": true, "tools": tools, "include": ["reasoning.encrypted_content"]});
    translate(&request.to_string(), &Arc::default()).unwrap().back
}

/// Returns the data of each event. Checks that the numbers have no gap and that each event is named by its type.
fn events(out: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(out).unwrap();
    let events = text.split_terminator("\n\n").enumerate().map(|(number, event)| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        assert_eq!(data["sequence_number"], number);
        data
    });
    events.collect()
}

fn fail() -> UpstreamError {
    UpstreamError {
        status: http::StatusCode::INTERNAL_SERVER_ERROR,
        message: "died".to_owned(),
        code: None,
        overflow: None,
    }
}

fn chunk(back: &mut ResponsesAdapter, chunk: &Value, out: &mut Vec<u8>) {
    let chunk = chunk.to_string();
    back.chunk(&serde_json::from_str::<ChatCompletion<'_>>(&chunk).unwrap(), out);
}

fn delta(delta: Value) -> Value {
    json!({"id": "chatcmpl-u", "created": 17, "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> [Value; 2] {
    [
        json!({"id": "chatcmpl-u", "created": 17, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        json!({"id": "chatcmpl-u", "created": 17, "choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}),
    ]
}

/// Builds the output from the events alone. Checks that each event may follow the previous one, and compares the output
/// with that of the last event.
fn assembled(events: &[Value]) -> Value {
    let mut items: Vec<(Value, String, bool)> = Vec::new();
    let [first, second, between @ .., last] = events else { panic!("too few events") };
    assert_eq!(
        (&first["type"], &second["type"]),
        (&json!("response.created"), &json!("response.in_progress"))
    );
    for event in between {
        let index = event["output_index"].as_u64().unwrap() as usize;
        let kind = event["type"].as_str().unwrap();
        if kind == "response.output_item.added" {
            assert_eq!(index, items.len());
            items.push((event["item"].clone(), String::new(), false));
            continue;
        }
        let (item, text, is_done) = &mut items[index];
        assert!(!*is_done, "{kind} after the item is done");
        if kind != "response.output_item.done" {
            assert_eq!(event["item_id"], item["id"]);
        }
        match kind.rsplit_once('.').unwrap().1 {
            "delta" => text.push_str(event["delta"].as_str().unwrap()),
            "done" if kind == "response.output_item.done" => {
                assert_eq!((&event["item"]["id"], &event["item"]["type"]), (&item["id"], &item["type"]));
                let said = ["/content/0/text", "/arguments", "/input"]
                    .into_iter()
                    .find_map(|at| event["item"].pointer(at)?.as_str());
                assert_eq!(said.unwrap_or_default(), text);
                (*item, *is_done) = (event["item"].clone(), true);
            }
            "done" | "added" => {
                let told = ["text", "arguments", "input"].into_iter().find_map(|key| event[key].as_str());
                assert!(told.is_none_or(|told| told == text), "{kind}");
            }
            _ => panic!("{kind}"),
        }
    }
    assert!(items.iter().all(|(_, _, is_done)| *is_done));
    let output: Vec<_> = items.into_iter().map(|(item, ..)| item).collect();
    assert_eq!(last["response"]["output"], json!(output));
    last["response"].clone()
}

#[test]
fn tokens_become_events_at_once() {
    let (mut back, mut out) = (back(), Vec::new());
    chunk(&mut back, &delta(json!({"role": "assistant", "content": ""})), &mut out);
    assert_eq!(events(&out).len(), 2);
    chunk(&mut back, &delta(json!({"reasoning": "Hm"})), &mut out);
    chunk(&mut back, &delta(json!({})), &mut out);
    chunk(&mut back, &delta(json!({"content": "Yes"})), &mut out);
    let kinds: Vec<_> = events(&out).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        kinds[2..],
        [
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
        ]
    );
    let text = events(&out).pop().unwrap();
    assert_eq!(
        text,
        json!({"type": "response.output_text.delta", "sequence_number": 10, "item_id": "msg_u_1", "output_index": 1,
            "content_index": 0, "logprobs": [], "delta": "Yes"})
    );
}

#[test]
fn an_error_fails_the_response_and_nothing_follows() {
    for said in [vec![], vec![delta(json!({"content": "half"}))]] {
        let (mut back, mut out) = (back(), Vec::new());
        said.iter().for_each(|said| chunk(&mut back, said, &mut out));
        back.error(&fail(), &mut out);
        let length = out.len();
        back.end(&mut out);
        back.error(&fail(), &mut out);
        chunk(&mut back, &delta(json!({"content": "late"})), &mut out);
        assert_eq!(out.len(), length);
        let events = events(&out);
        assert_eq!(events.last().unwrap()["type"], "response.failed");
        assert_eq!(assembled(&events)["error"], json!({"code": "server_error", "message": "died"}));
    }
}

#[test]
fn a_prompt_that_does_not_fit_is_a_stream_that_codex_understands() {
    assert_eq!(back().error_as_stream(&fail()), None);
    let overflow = Some(Overflow::default());
    let out = back().error_as_stream(&UpstreamError { overflow, ..fail() }).unwrap();
    assert_eq!(assembled(&events(&out))["error"]["code"], "context_length_exceeded");
}

/// Generates a message: reasoning, text, and calls by the tool's name and arguments.
fn message() -> impl Strategy<Value = (String, String, Vec<(&'static str, String)>)> {
    let name = prop::sample::select(vec!["ls", "patch", "agents__close", "unknown"]);
    let arguments = prop_oneof![".{0,30}", ".{0,30}".prop_map(|text| json!({"input": text}).to_string())];
    (".{0,30}", ".{0,30}", prop::collection::vec((name, arguments), 0..4))
}

/// Cuts a text into pieces of `size` characters.
fn pieces(text: &str, size: usize) -> Vec<String> {
    text.chars().collect::<Vec<_>>().chunks(size).map(|piece| piece.iter().collect()).collect()
}

proptest! {
    #[test]
    fn a_stream_however_it_is_cut_equals_the_whole_answer((reasoning, content, calls) in message(), size in 1usize..12) {
        let (mut streaming, mut out) = (back(), Vec::new());
        chunk(&mut streaming, &delta(json!({"role": "assistant", "content": ""})), &mut out);
        for (key, text) in [("reasoning", &reasoning), ("content", &content)] {
            for piece in pieces(text, size) {
                chunk(&mut streaming, &delta(json!({key: piece})), &mut out);
            }
        }
        for (index, (name, arguments)) in calls.iter().enumerate() {
            let id = format!("call_{index}");
            let begin = json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": ""}}]});
            chunk(&mut streaming, &delta(begin), &mut out);
            for piece in pieces(arguments, size) {
                chunk(&mut streaming, &delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})), &mut out);
            }
        }
        finish("stop").iter().for_each(|last| chunk(&mut streaming, last, &mut out));
        streaming.end(&mut out);
        let streamed = assembled(&events(&out));

        let tool_calls: Vec<_> = calls.iter().enumerate()
            .map(|(index, (name, arguments))| json!({"id": format!("call_{index}"), "function": {"name": name, "arguments": arguments}}))
            .collect();
        let message = json!({"reasoning": reasoning, "content": content, "tool_calls": tool_calls});
        let answer = json!({"id": "chatcmpl-u", "created": 17, "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 3}}).to_string();
        let whole = back().whole(&serde_json::from_str(&answer).unwrap());
        prop_assert_eq!(streamed, serde_json::from_slice::<Value>(&whole).unwrap());
    }

    #[test]
    fn the_events_are_in_order_for_any_upstream_chunks(
        said in prop::collection::vec(
            (prop::option::of(".{0,4}"), prop::option::of(".{0,4}"), prop::collection::vec((0u32..3, prop::option::of("[a-z]{0,5}"), prop::option::of(".{0,6}")), 0..3)),
            0..12,
        ),
        reason in prop::option::of(prop::sample::select(vec!["stop", "length", "abort", "odd"])),
        fails: bool,
    ) {
        let (mut back, mut out) = (back(), Vec::new());
        for (reasoning, content, calls) in said {
            let calls: Vec<_> = calls.into_iter()
                .map(|(index, name, arguments)| json!({"index": index, "function": {"name": name, "arguments": arguments}}))
                .collect();
            chunk(&mut back, &delta(json!({"reasoning": reasoning, "content": content, "tool_calls": calls})), &mut out);
        }
        if let Some(reason) = reason {
            finish(reason).iter().for_each(|last| chunk(&mut back, last, &mut out));
        }
        if fails {
            back.error(&fail(), &mut out);
        }
        back.end(&mut out);
        assembled(&events(&out));
    }
}
