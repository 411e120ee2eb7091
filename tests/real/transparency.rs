//! The same requests with and without the proxy, greedy: the agent gets the same.
//!
//! No request has a `seed`: together with a prompt that is prefilled in chunks it kills vLLM's CPU build.

use std::collections::BTreeMap;

use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::token::TokenId;
use serde_json::{Map, Value, json};

use crate::stage::Stage;

/// Request shapes by name: everything that an agent's chat request can be, within what the tiny model takes.
fn shapes() -> Vec<(&'static str, Value)> {
    let tool = json!({"type": "function", "function": {"name": "look", "description": "Look.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string", "enum": ["sky", "sea"]}}, "required": ["at"]}}});
    let no_thinking = json!({"enable_thinking": false});
    let long = "foo bar ".repeat(4000);
    vec![
        ("plain", json!({})),
        (
            "system",
            json!({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]}),
        ),
        (
            "parts",
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]}),
        ),
        ("unicode", json!({"messages": [{"role": "user", "content": "日本語 🎉 \u{0} \u{7f} é"}]})),
        (
            "history",
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "c"}, {"role": "user", "content": "d"}]}),
        ),
        (
            "tool results",
            json!({"tools": [tool], "messages": [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{\"at\": \"sky\"}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "blue"}]}),
        ),
        ("one token", json!({"max_tokens": 1})),
        ("max_completion_tokens", json!({"max_tokens": null, "max_completion_tokens": 5})),
        ("stop strings", json!({"stop": ["e", "o"], "chat_template_kwargs": no_thinking})),
        (
            "stop strings kept",
            json!({"stop": ["e"], "include_stop_str_in_output": true, "chat_template_kwargs": no_thinking}),
        ),
        ("stop token", json!({"logit_bias": {"77": 100}, "stop_token_ids": [77]})),
        ("end of turn", json!({"logit_bias": {"4089": 100}})),
        ("ignore_eos", json!({"ignore_eos": true, "logit_bias": {"4089": 100}})),
        ("no thinking", json!({"chat_template_kwargs": no_thinking})),
        ("reasoning hidden", json!({"include_reasoning": false})),
        ("logprobs", json!({"logprobs": true, "top_logprobs": 3})),
        ("logprobs alone", json!({"logprobs": true})),
        ("token ids", json!({"return_token_ids": true})),
        ("both", json!({"logprobs": true, "return_token_ids": true})),
        ("logprobs refused", json!({"logprobs": false})),
        ("two answers", json!({"n": 2, "temperature": 0})),
        ("tools", json!({"tools": [tool], "chat_template_kwargs": no_thinking})),
        (
            "tool required",
            json!({"tools": [tool], "tool_choice": "required", "max_tokens": 60, "chat_template_kwargs": no_thinking}),
        ),
        (
            "tool named",
            json!({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "look"}}, "max_tokens": 60, "chat_template_kwargs": no_thinking}),
        ),
        (
            "tool with ids",
            json!({"tools": [tool], "tool_choice": "required", "max_tokens": 60, "return_token_ids": true, "logprobs": true, "chat_template_kwargs": no_thinking}),
        ),
        (
            "tool text",
            json!({"tools": [tool], "max_tokens": 80, "chat_template_kwargs": no_thinking,
            "structured_outputs": {"regex": "ok<tool_call>\\{\"name\": \"look\", \"arguments\": \\{\"at\": \"sky\"\\}\\}</tool_call>"}}),
        ),
        (
            "json schema",
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"], "additionalProperties": false}}}, "max_tokens": 40, "chat_template_kwargs": no_thinking}),
        ),
        (
            "split characters",
            json!({"structured_outputs": {"regex": "日本語🎉 é"}, "max_tokens": 40, "chat_template_kwargs": no_thinking}),
        ),
        ("min_tokens", json!({"min_tokens": 5, "max_tokens": 9})),
        ("penalties", json!({"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.1})),
        ("unknown key", json!({"totally_unknown": {"x": [1.50, 1e3]}})),
        ("unknown model", json!({"model": "nobody"})),
        ("messages of a wrong type", json!({"messages": "hi"})),
        ("no messages", json!({"messages": null})),
        ("negative temperature", json!({"temperature": -1})),
        ("too many logprobs", json!({"logprobs": true, "top_logprobs": 50})),
        ("context overflow", json!({"messages": [{"role": "user", "content": long}]})),
        ("max_tokens too large", json!({"max_tokens": 100_000})),
    ]
}

fn request(shape: &Value, stream: Option<Value>) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "def main(): return"}], "max_tokens": 24, "temperature": 0});
    let members = body.as_object_mut().unwrap();
    members.extend(shape.as_object().unwrap().clone());
    members.retain(|key, value| !value.is_null() || key == "messages");
    if let Some(options) = stream {
        members.extend([("stream".to_owned(), json!(true)), ("stream_options".to_owned(), options)]);
    }
    body
}

/// Without what differs between any two answers.
fn comparable(mut answer: Value) -> Value {
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

/// A stream put together again: where vLLM cuts its chunks is not deterministic.
#[derive(Debug, Default, PartialEq)]
struct Whole {
    choices: BTreeMap<u64, Map<String, Value>>,
    usage: Vec<Value>,
    prompt_token_ids: Vec<Value>,
    errors: Vec<Value>,
    is_done: bool,
}

fn put_together(stream: &str) -> Whole {
    let mut whole = Whole::default();
    for data in stream.split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
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
            // With continuous usage every chunk has one, and how many chunks there are is not deterministic.
            whole.usage.extend(chunk.get("usage").cloned());
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

/// Text and lists are appended, objects joined member by member, anything else replaced.
fn join(joined: &mut Value, part: &Value) {
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

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn whole_answers_are_equal_with_and_without_us() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    for (name, shape) in shapes() {
        let body = request(&shape, None);
        // Once before: both answers then find the same prefix in the cache.
        stage.without_us(&body).await;
        let (direct, ours) = (stage.without_us(&body).await, stage.through_us(&trial, &body).await);
        assert_eq!(
            (ours.status(), &ours.headers()["content-type"]),
            (direct.status(), &direct.headers()["content-type"]),
            "{name}"
        );
        let (direct, ours): (Value, Value) = (direct.json().await.unwrap(), ours.json().await.unwrap());
        assert_eq!(comparable(ours), comparable(direct), "{name}");
    }
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn streams_are_equal_with_and_without_us() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    for (name, shape) in shapes() {
        for options in
            [json!({"include_usage": true}), json!({"include_usage": true, "continuous_usage_stats": true})]
        {
            let body = request(&shape, Some(options));
            stage.without_us(&body).await.text().await.unwrap();
            let (direct, ours) = (stage.without_us(&body).await, stage.through_us(&trial, &body).await);
            assert_eq!(
                (ours.status(), &ours.headers()["content-type"]),
                (direct.status(), &direct.headers()["content-type"]),
                "{name}"
            );
            let is_stream = direct.status().is_success();
            let (direct, ours) = (direct.text().await.unwrap(), ours.text().await.unwrap());
            if is_stream {
                let (direct, ours) = (put_together(&direct), put_together(&ours));
                assert!(ours.is_done, "{name}");
                assert_eq!(ours, direct, "{name}");
            } else {
                assert_eq!(ours, direct, "{name}");
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn every_answers_tokens_are_kept_as_vllm_reports_them() {
    let stage = Stage::set().await;
    for (name, shape) in shapes().into_iter().filter(|(name, _)| *name != "reasoning hidden") {
        for stream in [None, Some(json!({}))] {
            let mut asked = request(&shape, None);
            asked["return_token_ids"] = json!(true);
            if asked.get("logprobs").is_none_or(|logprobs| logprobs == false) {
                asked["logprobs"] = json!(true);
            }
            let direct = stage.without_us(&asked).await;
            let is_answer = direct.status().is_success();
            let direct: Value = direct.json().await.unwrap();
            let trial = stage.open().await;
            stage.through_us(&trial, &request(&shape, stream)).await.text().await.unwrap();
            let [call] = &stage.calls(&trial).await[..] else { panic!("{name}: one call") };
            if is_answer {
                kept_as_reported(name, call, &direct);
            } else {
                assert_eq!((call.status, call.is_trainable()), (CallStatus::Failed, false), "{name}");
            }
        }
    }
}

fn kept_as_reported(name: &str, call: &Call, reported: &Value) {
    let ids = |json: &Value| serde_json::from_value::<Vec<TokenId>>(json.clone()).unwrap();
    assert_eq!((call.status, &call.flaws[..]), (CallStatus::Complete, &[][..]), "{name}");
    assert_eq!(call.prompt_token_ids, ids(&reported["prompt_token_ids"]), "{name}");
    let choices = reported["choices"].as_array().unwrap();
    assert_eq!(call.choices.len(), choices.len(), "{name}");
    for (kept, choice) in call.choices.iter().zip(choices) {
        assert_eq!(kept.token_ids, ids(&choice["token_ids"]), "{name}");
        assert_eq!(kept.finish_reason.as_deref(), choice["finish_reason"].as_str(), "{name}");
        assert_eq!(kept.stop_reason.clone().unwrap_or_default(), choice["stop_reason"], "{name}");
        let reported = choice["logprobs"]["content"].as_array().unwrap().iter();
        let kept: Vec<_> = kept.logprobs.iter().map(|logprob| logprob.unwrap().get()).collect();
        let reported: Vec<_> = reported.map(|entry| entry["logprob"].as_f64().unwrap() as f32).collect();
        assert_eq!(kept.len(), reported.len(), "{name}");
        // How much of the prompt was cached moves the last bits of a sum of floats.
        let apart = kept.iter().zip(&reported).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4, "{name}: logprobs differ by {apart}");
    }
}
