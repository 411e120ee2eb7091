use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::dialect::gemini::request::{self, translate};
use crate::dialect::gemini::signature;

fn back(delivery: Delivery, thoughts: bool) -> GeminiAdapter {
    let body = json!({
        "contents": [{"parts": [{"text": "a"}]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": thoughts}},
    });
    translate(&body.to_string(), "agents-name", delivery).unwrap().back
}

fn streamed(chunks: &[Value], delivery: Delivery, thoughts: bool) -> Vec<u8> {
    let mut back = back(delivery, thoughts);
    let mut out = Vec::new();
    for chunk in chunks {
        back.chunk(&serde_json::from_str(&chunk.to_string()).unwrap(), &mut out);
    }
    back.end(&mut out);
    out
}

fn events(out: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(out).unwrap();
    let events = text.split_terminator("\n\n");
    events.map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
}

fn whole(message: Value, finish: &str, thoughts: bool) -> Value {
    let answer = json!({
        "id": "c", "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 1}},
    });
    let answer = answer.to_string();
    let form = back(Delivery::Whole, thoughts).whole(&serde_json::from_str(&answer).unwrap());
    serde_json::from_slice(&form).unwrap()
}

fn delta(delta: Value) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn ending(finish: &str) -> [Value; 2] {
    [
        json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}),
        json!({"id": "c", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}),
    ]
}

fn call(index: u32, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]})
}

#[test]
fn a_whole_answer() {
    let calls = json!([
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1.50}"}},
        {"id": "y", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]);
    let answer =
        whole(json!({"content": "Hi", "reasoning": "why", "tool_calls": calls}), "tool_calls", false);
    let expected = json!({
        "candidates": [{
            "content": {"parts": [
                {"text": "Hi", "thoughtSignature": signature::seal("why")},
                {"functionCall": {"id": "x", "name": "f", "args": {"a": 1.5}}},
                {"functionCall": {"id": "y", "name": "g", "args": {}}},
            ], "role": "model"},
            "finishReason": "STOP", "index": 0,
        }],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 1, "totalTokenCount": 8,
            "cachedContentTokenCount": 4},
        "modelVersion": "agents-name", "responseId": "c",
    });
    assert_eq!(answer, expected);
}

#[test]
fn a_stream_has_its_tokens_as_they_come_and_its_calls_whole() {
    let [finish, usage] = ending("tool_calls");
    let chunks = [
        json!({"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
        delta(json!({"reasoning": "wh"})),
        delta(json!({"reasoning": "y"})),
        delta(json!({})),
        delta(json!({"content": "Hi"})),
        delta(call(0, Some("x"), Some("f"), "")),
        delta(call(0, None, None, "{\"a\":\n")),
        delta(call(0, None, None, "1}")),
        delta(call(1, Some("y"), Some("g"), "{}")),
        finish,
        usage,
    ];
    let events = events(&streamed(&chunks, Delivery::Events, true));
    let parts: Vec<_> =
        events.iter().map(|event| event["candidates"][0]["content"]["parts"].clone()).collect();
    assert_eq!(
        parts,
        [
            json!([{"text": "wh", "thought": true}]),
            json!([{"text": "y", "thought": true}]),
            json!([{"text": "Hi", "thoughtSignature": signature::seal("why")}]),
            json!([{"functionCall": {"id": "x", "name": "f", "args": {"a": 1}}}]),
            json!([{"functionCall": {"id": "y", "name": "g", "args": {}}}]),
            json!([{"text": ""}]),
        ]
    );
    let last = events.last().unwrap();
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    assert_eq!(last["usageMetadata"]["totalTokenCount"], 8);
    assert!(events[..5].iter().all(|event| event["candidates"][0].get("finishReason").is_none()));
}

#[test]
fn an_array_is_one_json_text() {
    let [finish, usage] = ending("length");
    let chunks = [delta(json!({"content": "a"})), delta(json!({"content": "b"})), finish, usage];
    let array: Value = serde_json::from_slice(&streamed(&chunks, Delivery::Array, false)).unwrap();
    let events = events(&streamed(&chunks, Delivery::Events, false));
    assert_eq!(array, Value::from(events));
    assert_eq!(array[2]["candidates"][0]["finishReason"], "MAX_TOKENS");
}

#[test]
fn an_error_ends_the_stream() {
    let error = UpstreamError::new(http::StatusCode::SERVICE_UNAVAILABLE, "busy");
    for before in [vec![], vec![delta(json!({"content": "a"}))]] {
        let (mut array, mut sse) = (Vec::new(), Vec::new());
        for (delivery, out) in [(Delivery::Array, &mut array), (Delivery::Events, &mut sse)] {
            let mut back = back(delivery, false);
            for chunk in &before {
                back.chunk(&serde_json::from_str(&chunk.to_string()).unwrap(), out);
            }
            back.error(&error, out);
            back.end(out);
            back.error(&error, out);
        }
        let array: Vec<Value> = serde_json::from_slice(&array).unwrap();
        assert_eq!(array, events(&sse));
        assert_eq!(array.len(), before.len() + 1);
        assert_eq!(array.last().unwrap()["error"]["status"], "UNAVAILABLE");
    }
}

#[test]
fn an_invalid_call_is_reported_and_one_that_was_cut_off_is_omitted() {
    let broken = json!({"tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{\"a\": "}}]});
    let answer = whole(broken.clone(), "tool_calls", false);
    assert_eq!(answer["candidates"][0]["finishReason"], "MALFORMED_FUNCTION_CALL");
    assert_eq!(answer["candidates"][0]["finishMessage"], "Malformed function call: f({\"a\": )");
    let answer = whole(broken, "length", false);
    assert_eq!(answer["candidates"][0]["finishReason"], "MAX_TOKENS");
    assert_eq!(answer["candidates"][0]["content"]["parts"], json!([{"text": ""}]));
}

#[test]
fn candidates_are_distinguished() {
    let chunk = |index: u32, text: &str| json!({"choices": [{"index": index, "delta": {"content": text}}]});
    let events = events(&streamed(&[chunk(1, "b"), chunk(0, "a")], Delivery::Events, false));
    assert_eq!(events[0]["candidates"][0]["index"], 1);
    let last: Vec<_> =
        events[2]["candidates"].as_array().unwrap().iter().map(|candidate| &candidate["index"]).collect();
    assert_eq!(last, [&json!(0), &json!(1)]);
}

/// Assembles a turn as a client does: texts joined, signatures joined, everything else in order.
fn put_together(events: &[Value]) -> Value {
    let (mut text, mut thoughts, mut sealed, mut calls) =
        (String::new(), String::new(), String::new(), Vec::new());
    let parts =
        events.iter().flat_map(|event| event["candidates"][0]["content"]["parts"].as_array().unwrap());
    for part in parts {
        let said = part["text"].as_str().unwrap_or_default();
        if part.get("thought").is_some() {
            thoughts += said
        } else {
            text += said
        }
        sealed.extend(part["thoughtSignature"].as_str().and_then(signature::open));
        calls.extend(part.get("functionCall").cloned());
    }
    let last = &events.last().unwrap()["candidates"][0];
    json!([text, thoughts, sealed, calls, last["finishReason"], last["finishMessage"]])
}

/// Cuts a text at arbitrary places.
fn pieces(text: &str, cuts: &[prop::sample::Index]) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(letters.len() + 1)).collect();
    at.extend([0, letters.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| letters[pair[0]..pair[1]].iter().collect()).collect()
}

fn arguments() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("{\"a\": [1.0, \"é\\n\"],\n \"b\": {}}".to_owned()),
        Just("{\"a".to_owned()),
        Just("7".to_owned())
    ]
}

proptest! {
    /// A client of a stream that is cut anywhere assembles the same turn as from the whole answer. The next request
    /// contains that turn.
    #[test]
    fn a_stream_equals_the_whole_answer(
        reasoning in "[a-zé]{0,9}", content in "[a-zé\n]{0,9}", calls in prop::collection::vec(arguments(), 0..3),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        finish in prop::sample::select(vec!["stop", "tool_calls", "length", "abort"]), thoughts in any::<bool>(),
    ) {
        let mut chunks: Vec<_> = pieces(&reasoning, &cuts).iter().map(|piece| delta(json!({"reasoning": piece}))).collect();
        chunks.extend(pieces(&content, &cuts).iter().map(|piece| delta(json!({"content": piece}))));
        for (index, arguments) in (0..).zip(&calls) {
            chunks.push(delta(call(index, Some(&format!("id{index}")), Some("f"), "")));
            chunks.extend(pieces(arguments, &cuts).iter().map(|piece| delta(call(index, None, None, piece))));
        }
        chunks.extend(ending(finish));
        let listed: Vec<_> = (0..).zip(&calls).map(|(index, arguments): (u32, _)|
            json!({"id": format!("id{index}"), "function": {"name": "f", "arguments": arguments}})).collect();
        let answer = whole(json!({"reasoning": reasoning, "content": content, "tool_calls": listed}), finish, thoughts);
        let events = events(&streamed(&chunks, Delivery::Events, thoughts));
        // A stream has already sent a call when it learns that the limit cut a later one.
        if finish != "length" || calls.len() < 2 {
            prop_assert_eq!(put_together(&events), put_together(std::slice::from_ref(&answer)));
        }
        let next = |contents: Vec<Value>| {
            let contents = [&[json!({"parts": [{"text": "a"}]})][..], &contents].concat();
            let body = json!({"contents": contents});
            request::translate(&body.to_string(), "m", Delivery::Whole).unwrap().chat["messages"][1].clone()
        };
        let turn = next(events.iter().map(|event| event["candidates"][0]["content"].clone()).collect());
        prop_assert_eq!(turn.get("reasoning").and_then(Value::as_str).unwrap_or_default(), &reasoning);
        prop_assert_eq!(turn["content"].as_str().unwrap_or_default(), &content);
    }

    /// For any bytes from upstream, each event is JSON, and the last one alone has the finish reason.
    #[test]
    fn any_chunks_make_sound_streams(
        said in prop::collection::vec((0..3u32, 0..5u8, 0..3u32, prop::option::of(0..2u8), "[a{}\":]{0,3}"), 0..12),
        fails in any::<bool>(),
    ) {
        let chunks: Vec<_> = said.into_iter().map(|(choice, kind, index, id, text)| {
            let id = id.map(|id| id.to_string());
            let delta = match kind {
                0 => json!({"content": text}),
                1 => json!({"reasoning": text}),
                2 | 3 => call(index, id.as_deref(), (kind == 2).then_some("f"), &text),
                _ => json!({}),
            };
            json!({"choices": [{"index": choice, "delta": delta, "finish_reason": (kind == 4).then_some(text)}]})
        }).collect();
        for delivery in [Delivery::Events, Delivery::Array] {
            let mut back = back(delivery, true);
            let mut out = Vec::new();
            for chunk in &chunks {
                back.chunk(&serde_json::from_str(&chunk.to_string()).unwrap(), &mut out);
            }
            if fails {
                back.error(&UpstreamError::new(http::StatusCode::BAD_GATEWAY, "m"), &mut out);
            }
            back.end(&mut out);
            let events = if delivery == Delivery::Array { serde_json::from_slice(&out).unwrap() } else { events(&out) };
            let (last, before) = events.split_last().unwrap();
            prop_assert_eq!(last.get("error").is_some(), fails);
            for candidate in before.iter().flat_map(|event| event["candidates"].as_array().unwrap()) {
                prop_assert!(candidate.get("finishReason").is_none());
                prop_assert!(!candidate["content"]["parts"].as_array().unwrap().is_empty());
            }
            for candidate in last.get("candidates").into_iter().flat_map(|list| list.as_array().unwrap()) {
                prop_assert!(candidate.get("finishReason").is_some());
            }
        }
    }
}
