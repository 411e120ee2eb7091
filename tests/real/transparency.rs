//! The same requests with and without the proxy, greedy: the agent gets the same answers, and every token is recorded.
//!
//! No request has a `seed`: together with a prompt that is prefilled in chunks it kills vLLM's CPU build.

mod chat;
mod completions;
mod kept;
mod together;

use reqwest::Response;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::CallStatus;
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::harness::{Stage, bare_vllm};
use together::{comparable, put_together};

/// Headers that differ between any two answers, or depend on such a difference.
const CHANGING_HEADERS: [&str; 3] = ["content-length", "date", "x-request-id"];

/// An endpoint of vLLM, and requests to it.
struct Endpoint {
    path: &'static str,
    base: Value,
    shapes: Vec<(&'static str, Value)>,
}

impl Endpoint {
    fn chat() -> Self {
        Self { path: "/chat/completions", base: chat::base(), shapes: chat::shapes() }
    }

    fn completions() -> Self {
        Self { path: "/completions", base: completions::base(), shapes: completions::shapes() }
    }

    /// Returns the requests by name. Each shape replaces fields of the base, and `null` removes a field, except for
    /// required ones.
    fn requests(&self, stream: Option<&Value>) -> impl Iterator<Item = (&'static str, Value)> {
        self.shapes.iter().map(move |(name, shape)| {
            let mut body = self.base.clone();
            let members = body.as_object_mut().unwrap();
            members.extend(shape.as_object().unwrap().clone());
            members.retain(|key, value| !value.is_null() || key == "messages" || key == "prompt");
            if let Some(options) = stream {
                members.extend([
                    ("stream".to_owned(), json!(true)),
                    ("stream_options".to_owned(), options.clone()),
                ]);
            }
            (*name, body)
        })
    }

    /// Sends each prompt once, so that all later answers find the same prefix in the cache.
    async fn fill_cache(&self, stage: &Stage) {
        for (_, body) in self.requests(None) {
            stage.post(&format!("{}/v1", stage.vllm), self.path, &body).await.text().await.unwrap();
        }
    }

    /// Sends the same request directly and through the proxy.
    async fn both(&self, stage: &Stage, trial: &TrialOpened, body: &Value) -> (Response, Response) {
        let direct = stage.post(&format!("{}/v1", stage.vllm), self.path, body).await;
        (direct, stage.post(&trial.base_urls.openai, self.path, body).await)
    }
}

/// Returns status and headers.
fn head(response: &Response) -> (u16, Vec<(String, String)>) {
    let headers = response.headers().iter().map(|(name, value)| {
        let value = if CHANGING_HEADERS.contains(&name.as_str()) { "" } else { value.to_str().unwrap() };
        (name.to_string(), value.to_owned())
    });
    let mut headers: Vec<_> = headers.collect();
    headers.sort();
    (response.status().as_u16(), headers)
}

async fn whole_answers_are_equal(stage: Stage, endpoint: Endpoint) {
    let trial = stage.open().await;
    endpoint.fill_cache(&stage).await;
    for (name, body) in endpoint.requests(None) {
        let (direct, ours) = endpoint.both(&stage, &trial, &body).await;
        assert_eq!(head(&ours), head(&direct), "{name}");
        let (direct, ours): (Value, Value) = (direct.json().await.unwrap(), ours.json().await.unwrap());
        // The comparison is of text, because the order of keys counts too.
        assert_eq!(comparable(ours).to_string(), comparable(direct).to_string(), "{name}");
    }
}

/// Sends bodies that vLLM rejects as a whole, with the number of their members in its message, and a body whose tool it
/// rejects.
async fn refusals_are_equal(stage: Stage) {
    let trial = stage.open().await;
    let hi = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        ("/chat/completions", json!({})),
        ("/chat/completions", json!({"model": "tiny"})),
        ("/chat/completions", json!({"model": "tiny", "temperature": 0, "logprobs": true})),
        ("/chat/completions", json!({"model": "tiny", "messages": hi, "tools": [{"type": "function"}]})),
        (
            "/chat/completions",
            json!({"model": "tiny", "messages": hi, "tools": [{"type": "function", "a": 1, "b": 2}]}),
        ),
        (
            "/chat/completions",
            json!({"model": "tiny", "messages": hi, "temperature": "warm", "top_p": "all"}),
        ),
        ("/completions", json!({})),
        ("/completions", json!({"model": "tiny"})),
        ("/completions", json!({"model": "tiny", "prompt": "hi", "stream_options": 7})),
    ] {
        let direct = stage.post(&format!("{}/v1", stage.vllm), path, &body).await;
        let ours = stage.post(&trial.base_urls.openai, path, &body).await;
        assert_eq!(head(&ours), head(&direct), "{body}");
        assert!(!direct.status().is_success(), "{body}");
        assert_eq!(ours.text().await.unwrap(), direct.text().await.unwrap(), "{body}");
    }
}

/// Returns the forms of a stream's events in order: the members that exist and those that are null. Words are omitted.
/// The parts of tool calls and the end of the answer are events of their own, because a busy vLLM puts several tokens,
/// or the last tokens and the end, into one event.
fn forms(stream: &str) -> Vec<String> {
    let form = |event: &str| {
        let Ok(mut chunk) = serde_json::from_str::<Value>(event.trim_start_matches("data: ")) else {
            return vec![event.to_owned()];
        };
        chunk.as_object_mut().unwrap().retain(|key, _| key != "id" && key != "created");
        chunk.pointer_mut("/choices/0/delta").into_iter().for_each(without_words);
        end_by_itself(chunk).into_iter().flat_map(one_part_each).map(|chunk| chunk.to_string()).collect()
    };
    let mut forms: Vec<_> = stream.split("\n\n").flat_map(form).collect();
    forms.dedup();
    forms
}

/// Returns the chunk, or for a chunk with tokens and the end of the answer: the tokens as before the end, and the end.
fn end_by_itself(chunk: Value) -> Vec<Value> {
    let is_empty = |delta: &Value| delta.as_object().is_none_or(serde_json::Map::is_empty);
    if chunk["choices"][0]["finish_reason"].is_null() || is_empty(&chunk["choices"][0]["delta"]) {
        return vec![chunk];
    }
    let (mut tokens, mut end) = (chunk.clone(), chunk);
    tokens.as_object_mut().unwrap().remove("system_fingerprint");
    let choice = tokens["choices"][0].as_object_mut().unwrap();
    choice.remove("stop_reason");
    choice["finish_reason"] = Value::Null;
    end["choices"][0]["delta"] = json!({});
    vec![tokens, end]
}

/// Returns a copy of the chunk for each part of a tool call that it has, or the chunk itself if it has none.
fn one_part_each(chunk: Value) -> Vec<Value> {
    let parts = chunk.pointer("/choices/0/delta/tool_calls").and_then(Value::as_array).cloned();
    let Some(parts) = parts.filter(|parts| !parts.is_empty()) else { return vec![chunk] };
    let with = |part| {
        let mut chunk = chunk.clone();
        *chunk.pointer_mut("/choices/0/delta/tool_calls").unwrap() = json!([part]);
        chunk
    };
    parts.into_iter().map(with).collect()
}

fn without_words(value: &mut Value) {
    match value {
        Value::String(text) => text.clear(),
        Value::Array(values) => values.iter_mut().for_each(without_words),
        Value::Object(members) => members.values_mut().for_each(without_words),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Compares streams without reasoning, with the fields that mention the missing reasoning.
async fn streams_without_reasoning_are_equal(stage: Stage) {
    let trial = stage.open().await;
    let no_thinking = json!({"enable_thinking": false});
    let tool = json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}});
    for (name, more) in [
        ("no thinking", json!({"chat_template_kwargs": no_thinking})),
        ("thinking", json!({})),
        (
            "a tool",
            json!({"chat_template_kwargs": no_thinking, "tools": [tool], "tool_choice": "required", "max_tokens": 60}),
        ),
    ] {
        let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0,
                              "max_tokens": 12, "stream": true, "include_reasoning": false});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let vllm = format!("{}/v1", stage.vllm);
        let direct = forms(&stage.post(&vllm, "/chat/completions", &body).await.text().await.unwrap());
        let ours = async || {
            let ours = stage.post(&trial.base_urls.openai, "/chat/completions", &body).await;
            forms(&ours.text().await.unwrap())
        };
        // The proxy asks the server about its parser independently of the calls.
        eventually("the proxy knows whether the server has a parser", async || ours().await == direct).await;
        assert_eq!(ours().await, direct, "{name}");
    }
}

async fn streams_are_equal(stage: Stage, endpoint: Endpoint) {
    let trial = stage.open().await;
    endpoint.fill_cache(&stage).await;
    for options in [
        json!(null),
        json!({"include_usage": true}),
        json!({"include_usage": true, "continuous_usage_stats": true}),
    ] {
        for (name, body) in endpoint.requests(Some(&options)) {
            let (direct, ours) = endpoint.both(&stage, &trial, &body).await;
            assert_eq!(head(&ours), head(&direct), "{name}");
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

async fn tokens_are_recorded_as_vllm_reports_them(stage: Stage, endpoint: Endpoint, everything: Value) {
    let streamed = json!({});
    for stream in [None, Some(&streamed)] {
        for (name, body) in endpoint.requests(stream) {
            let mut asked = body.clone();
            let members = asked.as_object_mut().unwrap();
            members.retain(|key, _| key != "stream" && key != "stream_options");
            for (key, value) in everything.as_object().unwrap() {
                if members.get(key).is_none_or(|said| said == false) {
                    members.insert(key.clone(), value.clone());
                }
            }
            let direct = stage.post(&format!("{}/v1", stage.vllm), endpoint.path, &asked).await;
            let is_answer = direct.status().is_success();
            let direct: Value = direct.json().await.unwrap();
            let trial = stage.open().await;
            stage.post(&trial.base_urls.openai, endpoint.path, &body).await.text().await.unwrap();
            let [call] = &stage.calls(&trial).await[..] else { panic!("{name}: one call") };
            if is_answer {
                kept::as_reported(name, call, &direct);
            } else {
                assert_eq!((call.status, call.is_trainable()), (CallStatus::Failed, false), "{name}");
            }
        }
    }
}

/// Returns the fields of a complete report. Without reasoning vLLM reports no ids at all, so the proxy requests it and
/// omits it.
fn chat_everything() -> Value {
    json!({"return_token_ids": true, "logprobs": true, "include_reasoning": true})
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn whole_chat_answers_are_equal_with_parsers() {
    whole_answers_are_equal(Stage::set().await, Endpoint::chat()).await;
}

#[tokio::test]
#[ignore = "needs vLLM without parsers: run ./scripts/test"]
async fn whole_chat_answers_are_equal_without_parsers() {
    whole_answers_are_equal(Stage::before(bare_vllm()).await, Endpoint::chat()).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn messages_about_invalid_bodies_are_equal() {
    refusals_are_equal(Stage::set().await).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn streams_without_reasoning_are_equal_with_parsers() {
    streams_without_reasoning_are_equal(Stage::set().await).await;
}

#[tokio::test]
#[ignore = "needs vLLM without parsers: run ./scripts/test"]
async fn streams_without_reasoning_are_equal_without_parsers() {
    streams_without_reasoning_are_equal(Stage::before(bare_vllm()).await).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn chat_streams_are_equal_with_parsers() {
    streams_are_equal(Stage::set().await, Endpoint::chat()).await;
}

#[tokio::test]
#[ignore = "needs vLLM without parsers: run ./scripts/test"]
async fn chat_streams_are_equal_without_parsers() {
    streams_are_equal(Stage::before(bare_vllm()).await, Endpoint::chat()).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn tokens_of_chat_answers_are_recorded_with_parsers() {
    tokens_are_recorded_as_vllm_reports_them(Stage::set().await, Endpoint::chat(), chat_everything()).await;
}

#[tokio::test]
#[ignore = "needs vLLM without parsers: run ./scripts/test"]
async fn tokens_of_chat_answers_are_recorded_without_parsers() {
    let stage = Stage::before(bare_vllm()).await;
    tokens_are_recorded_as_vllm_reports_them(stage, Endpoint::chat(), chat_everything()).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn whole_completions_are_equal_with_parsers() {
    whole_answers_are_equal(Stage::set().await, Endpoint::completions()).await;
}

#[tokio::test]
#[ignore = "needs vLLM without parsers: run ./scripts/test"]
async fn whole_completions_are_equal_without_parsers() {
    whole_answers_are_equal(Stage::before(bare_vllm()).await, Endpoint::completions()).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn streamed_completions_are_equal_with_parsers() {
    streams_are_equal(Stage::set().await, Endpoint::completions()).await;
}

#[tokio::test]
#[ignore = "needs vLLM without parsers: run ./scripts/test"]
async fn streamed_completions_are_equal_without_parsers() {
    streams_are_equal(Stage::before(bare_vllm()).await, Endpoint::completions()).await;
}
