//! Recorded answers of a real vLLM, with and without ids and logprobs. The former must equal the latter after the
//! cleaning.

use rolltap_rollout::call::{Call, CallRole, CallStatus};
use serde_json::Value;

use super::*;
use crate::recorder::{CallFacts, CallStart};
use crate::wire::sse::{Decoder, data};

const NOTHING: ChatAnswerOptions =
    ChatAnswerOptions { logprobs: false, token_ids: false, hidden: None, renamed: None };
const EVERYTHING: ChatAnswerOptions = ChatAnswerOptions { logprobs: true, token_ids: true, ..NOTHING };

fn recorder(choices: u32) -> Recorder {
    let mut recorder = Recorder::begin(CallStart::of_test());
    recorder.requested(CallFacts::of_test(choices), CallRole::default());
    recorder
}

/// Returns the data of every event that the agent gets, and the record.
fn streamed(stream: &str, asked: &ChatAnswerOptions, choices: u32) -> (Vec<String>, Call) {
    let (mut recorder, mut adapter) = (recorder(choices), ChatAdapter::new(asked.clone()));
    let mut decoder = Decoder::default();
    let arrived = decoder.take(bytes::Bytes::copy_from_slice(stream.as_bytes())).unwrap();
    let mut seen = Vec::new();
    for range in arrived.events {
        let data = data(&arrived.bytes[range]).unwrap().into_owned();
        match adapter.event(&data, &mut recorder) {
            EventAction::AsIs | EventAction::Last => seen.push(data.clone()),
            EventAction::Edited(edited) => seen.push(edited.edited().unwrap()),
            EventAction::Dropped => {}
        }
    }
    (seen, recorder.finish(CallStatus::Complete, None).remove(0))
}

/// Removes the fields that differ between any two requests.
fn comparable(data: &str) -> String {
    let Ok(mut json) = serde_json::from_str::<Value>(data) else { return data.to_owned() };
    for key in ["id", "created"] {
        json.as_object_mut().unwrap().remove(key);
    }
    for call in
        json.pointer_mut("/choices/0/delta/tool_calls").and_then(Value::as_array_mut).into_iter().flatten()
    {
        call.as_object_mut().unwrap().remove("id");
    }
    json.to_string()
}

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/fixtures/vllm/", $name))
    };
}

#[test]
fn a_cleaned_stream_is_what_vllm_sends_without_us() {
    for (with_ids, plain) in [
        (fixture!("chat_stream_tokids_logprobs.sse"), fixture!("chat_stream_plain.sse")),
        (fixture!("tools_auto_stream_tokids.sse"), fixture!("tools_auto_stream_plain.sse")),
        (fixture!("utf8_stream_tokids.sse"), fixture!("utf8_stream_plain.sse")),
    ] {
        let (cleaned, call) = streamed(with_ids, &NOTHING, 1);
        let (expected, _) = streamed(plain, &NOTHING, 1);
        let comparable = |events: Vec<String>| events.iter().map(|data| comparable(data)).collect::<Vec<_>>();
        assert_eq!(comparable(cleaned), comparable(expected));
        assert_eq!(call.flaws, []);
        assert!(!call.choices[0].token_ids.is_empty());
    }
}

#[test]
fn what_the_agent_asked_for_passes_untouched() {
    let stream = fixture!("tools_auto_stream_tokids.sse");
    let (seen, _) = streamed(stream, &EVERYTHING, 1);
    let sent: Vec<_> = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(seen, sent);
}

#[test]
fn an_agent_that_asked_for_logprobs_alone_keeps_them_and_its_empty_deltas() {
    let stream = fixture!("tools_auto_stream_tokids.sse");
    let (seen, _) = streamed(stream, &ChatAnswerOptions { logprobs: true, ..NOTHING }, 1);
    assert_eq!(seen.len(), stream.matches("data: ").count());
    assert!(seen.iter().any(|data| data.contains("\"logprob\":")));
    assert!(!seen.iter().any(|data| data.contains("token_ids\":[")));
}

#[test]
fn each_of_several_choices_is_recorded() {
    let (_, call) = streamed(fixture!("chat_stream_n2.sse"), &NOTHING, 2);
    assert_eq!(call.flaws, []);
    let lengths: Vec<_> = call.choices.iter().map(|choice| (choice.index, choice.token_ids.len())).collect();
    assert_eq!(lengths, [(0, 12), (1, 12)]);
    assert_eq!(call.prompt_token_ids.len(), 15);
}

#[test]
fn a_cleaned_whole_answer_is_what_vllm_sends_without_us() {
    let mut recorder = recorder(1);
    let cleaned = ChatAdapter::new(NOTHING)
        .whole(fixture!("chat_token_ids_logprobs.body.json"), &mut recorder)
        .unwrap();
    let call = recorder.finish(CallStatus::Complete, None).remove(0);
    assert_eq!(
        comparable(std::str::from_utf8(&cleaned).unwrap()),
        comparable(fixture!("chat_plain.body.json"))
    );
    assert_eq!((call.flaws.as_slice(), call.choices[0].token_ids.len()), (&[][..], 12));
}

#[test]
fn an_error_where_an_answer_belongs_is_an_error() {
    let error = r#"{"error":{"message":"engine died","type":"InternalServerError","code":500}}"#;
    let mut whole_answer = recorder(1);
    assert_eq!(ChatAdapter::new(NOTHING).whole(error, &mut whole_answer), None);
    let (_, streamed) = streamed(&format!("data: {error}\n\ndata: [DONE]\n\n"), &NOTHING, 1);
    for call in [whole_answer.finish(CallStatus::Complete, None).remove(0), streamed] {
        assert_eq!(call.status, CallStatus::Failed);
        assert!(call.error.unwrap().contains("engine died"));
    }
}

#[test]
fn what_is_not_of_vllms_form_passes_and_is_marked() {
    for odd in ["", "[]", "{\"choices\":7}", "{\"choices\":[{\"index\":-1}]}", "not json"] {
        let mut recorder = recorder(1);
        assert_eq!(ChatAdapter::new(NOTHING).event(odd, &mut recorder), EventAction::AsIs, "{odd}");
        assert!(!recorder.finish(CallStatus::Complete, None).remove(0).is_trainable(), "{odd}");
    }
}

/// The answer of vLLM 0.32 with `include_reasoning`, and the same answer without it.
#[test]
fn hidden_reasoning_is_left_out_as_vllm_leaves_it_out() {
    let chunk = |delta: &str, rest: &str| format!(r#"{{"choices":[{{"index":0,"delta":{delta},{rest}}}]}}"#);
    let tokens = r#""logprobs":{"content":[{"logprob":-1.0}]},"finish_reason":null,"token_ids":[5]"#;
    let last = r#""logprobs":{"content":[{"logprob":-1.0}]},"finish_reason":"stop","token_ids":[6]"#;
    let cleaned = r#""logprobs":null,"finish_reason":null,"token_ids":null"#;
    let cleaned_last = r#""logprobs":null,"finish_reason":"stop","token_ids":null"#;
    let role = chunk(r#"{"role":"assistant","content":""}"#, r#""finish_reason":null"#);
    let mut adapter = ChatAdapter::new(ChatAnswerOptions { hidden: Some(Hidden::default()), ..NOTHING });
    let mut recorder = recorder(1);
    let mut sent = |data: &str| match adapter.event(data, &mut recorder) {
        EventAction::AsIs => Some(data.to_owned()),
        EventAction::Edited(edited) => edited.edited(),
        EventAction::Dropped | EventAction::Last => None,
    };
    assert_eq!(sent(&role), Some(role.clone()));
    // A server without a reasoning parser adds no `reasoning` field.
    assert_eq!(sent(&chunk(r#"{"content":"a"}"#, tokens)), Some(chunk(r#"{"content":"a"}"#, cleaned)));
    assert_eq!(sent(&chunk(r#"{"reasoning":"hm"}"#, tokens)), None);
    assert_eq!(sent(&chunk(r#"{"content":"","reasoning":"hm"}"#, tokens)), None);
    for (with, without) in [
        (r#"{"content":"a"}"#, r#"{"content":"a","reasoning":null}"#),
        (r#"{"content":"a","reasoning":"hm"}"#, r#"{"content":"a","reasoning":null}"#),
        (r#"{"tool_calls":[{"index":0}]}"#, r#"{"reasoning":null,"tool_calls":[{"index":0}]}"#),
    ] {
        assert_eq!(sent(&chunk(with, tokens)), Some(chunk(without, cleaned)));
    }
    assert_eq!(sent(&chunk(r#"{"reasoning":"."}"#, last)), Some(chunk("{}", cleaned_last)));
    let call = recorder.finish(CallStatus::Complete, None).remove(0);
    assert_eq!(call.choices[0].token_ids.len(), 7);
}
