//! The translation of an answer, whole and streamed.

use http::StatusCode;
use serde_json::{Value, json};

use super::{assembled, back, events, streamed, whole};
use crate::dialect::adapter::Translator;
use crate::dialect::upstream_error::UpstreamError;

fn delta(delta: Value) -> Value {
    json!({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta}]})
}

fn finish(reason: &str, stop: Value) -> Value {
    json!({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason, "stop_reason": stop}]})
}

fn first() -> Value {
    json!({"id": "chatcmpl-1", "prompt_token_ids": [1, 2, 3], "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
}

fn usage() -> Value {
    json!({"id": "chatcmpl-1", "choices": [],
        "usage": {"prompt_tokens": 3, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}}})
}

fn call(index: u32, id: Option<&str>, arguments: &str) -> Value {
    let name = id.map(|_| "f");
    delta(
        json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}),
    )
}

#[test]
fn a_stream_has_anthropics_events_in_anthropics_order() {
    let chunks = [
        first(),
        delta(json!({"reasoning": "hm"})),
        delta(json!({})),
        delta(json!({"content": "Yes"})),
        delta(json!({"content": "."})),
        call(0, Some("a"), ""),
        call(0, None, "{\"x\":"),
        delta(json!({"content": "\n"})),
        call(0, None, "1}"),
        call(1, Some("b"), "{}"),
        finish("tool_calls", Value::Null),
        usage(),
    ];
    let events = streamed(&mut back(json!({})), &chunks);
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let block = |pieces: usize| {
        [vec!["content_block_start"], vec!["content_block_delta"; pieces], vec!["content_block_stop"]]
            .concat()
    };
    let expected = [
        vec!["message_start"],
        block(2),
        block(2),
        block(2),
        block(1),
        block(1),
        vec!["message_delta", "message_stop"],
    ];
    assert_eq!(kinds, expected.concat());
    assert_eq!(
        events[0]["message"],
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null,
            "stop_sequence": null,
            "usage": {"input_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}})
    );
    let message = assembled(&events);
    assert_eq!(
        message["content"],
        json!([
            {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},
            {"type": "text", "text": "Yes."},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
            {"type": "text", "text": "\n"},
            {"type": "tool_use", "id": "b", "name": "f", "input": {}},
        ])
    );
    assert_eq!(message["stop_reason"], "tool_use");
    assert_eq!(
        message["usage"],
        json!({"input_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2, "output_tokens": 7})
    );
}

#[test]
fn each_chunk_becomes_its_events_at_once() {
    let mut back = back(json!({}));
    for (chunk, events_of_it) in [(first(), 1), (delta(json!({"content": "a"})), 2), (delta(json!({})), 0)] {
        let mut out = Vec::new();
        back.chunk(&serde_json::from_str(&chunk.to_string()).unwrap(), &mut out);
        assert_eq!(events(&out).len(), events_of_it, "{chunk}");
    }
}

#[test]
fn stop_reasons() {
    let said = json!({"content": "x"});
    let whole_call =
        json!({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{\"a\":1}"}}]});
    let cut_call = json!({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{\"a\":"}}]});
    for (message, finish, stop, reason, sequence) in [
        (&said, "stop", json!(null), "end_turn", json!(null)),
        (&said, "stop", json!(17), "end_turn", json!(null)),
        (&said, "stop", json!("END"), "stop_sequence", json!("END")),
        (&said, "stop", json!("enforced"), "end_turn", json!(null)),
        (&said, "length", json!(null), "max_tokens", json!(null)),
        (&said, "abort", json!(null), "max_tokens", json!(null)),
        (&said, "content_filter", json!(null), "refusal", json!(null)),
        (&whole_call, "tool_calls", json!(null), "tool_use", json!(null)),
        (&whole_call, "stop", json!("END"), "tool_use", json!(null)),
        (&cut_call, "stop", json!("END"), "stop_sequence", json!("END")),
        (&cut_call, "length", json!(null), "max_tokens", json!(null)),
    ] {
        let mut back = back(json!({"stop_sequences": ["END"]}));
        let answer = whole(
            &mut back,
            &json!({"choices": [{"message": message, "finish_reason": finish, "stop_reason": stop}]}),
        );
        assert_eq!(
            (&answer["stop_reason"], &answer["stop_sequence"]),
            (&json!(reason), &sequence),
            "{message} {finish} {stop}"
        );
    }
}

#[test]
fn an_answer_of_nothing_is_an_empty_text() {
    let nothing = json!([{"type": "text", "text": ""}]);
    let answer = whole(
        &mut back(json!({})),
        &json!({"choices": [{"message": {"content": null}, "finish_reason": "stop"}]}),
    );
    assert_eq!(answer["content"], nothing);
    let events = streamed(&mut back(json!({})), &[first(), finish("stop", Value::Null), usage()]);
    assert_eq!(assembled(&events)["content"], nothing);
}

#[test]
fn what_the_model_got_wrong_of_its_arguments_is_not_run_as_less() {
    let calls = json!({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{\"a\": 1.50 }"}},
        {"id": "b", "function": {"name": "f", "arguments": "[1"}}]});
    let answer = whole(&mut back(json!({})), &json!({"choices": [{"message": calls}]}));
    assert_eq!(answer["content"][0]["input"], json!({"a": 1.50}));
    assert_eq!(answer["content"][1]["input"], json!({"unreadable_arguments": "[1"}));
}

#[test]
fn nothing_follows_an_error() {
    let mut back = back(json!({}));
    let mut out = Vec::new();
    back.chunk(&serde_json::from_str(&first().to_string()).unwrap(), &mut out);
    back.error(&UpstreamError::new(StatusCode::INTERNAL_SERVER_ERROR, "engine died"), &mut out);
    back.chunk(&serde_json::from_str(&delta(json!({"content": "x"})).to_string()).unwrap(), &mut out);
    back.end(&mut out);
    let events = events(&out);
    assert_eq!(events.len(), 2);
    assert_eq!(events[1], json!({"type": "error", "error": {"type": "api_error", "message": "engine died"}}));
}

#[test]
fn a_call_that_is_taken_up_again_is_an_error() {
    let chunks = [first(), call(0, Some("a"), "{"), call(1, Some("b"), "{}"), call(0, None, "}")];
    let events = streamed(&mut back(json!({})), &chunks);
    assert_eq!(events.last().unwrap()["error"]["type"], "api_error");
}

#[test]
fn arguments_that_are_no_object_wait_until_they_are_whole() {
    let chunks = [first(), call(0, Some("a"), "tr"), call(0, None, "ue"), call(1, Some("b"), "")];
    let message = assembled(&streamed(&mut back(json!({})), &chunks));
    assert_eq!(message["content"][0]["input"], json!({"unreadable_arguments": "true"}));
    assert_eq!(message["content"][1]["input"], json!({}));
}
