//! The rules that a trial enforces on its agent: model, seed, limits.

use reqwest::StatusCode;
use rolltap_rollout::call::Call;
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::harness::{Stage, request, simulator};
use crate::raw_upstream::{DONE, RawUpstream, stream, whole};

fn seeds(calls: &[Call]) -> Vec<Option<i64>> {
    calls.iter().map(|call| call.sampling.params.get("seed").and_then(Value::as_i64)).collect()
}

#[tokio::test]
async fn an_agent_gets_its_own_name_of_the_model_back() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"model_aliases": {"claude-*": "sim"}})).await;
    let named = |stream| request(json!({"model": "claude-opus", "stream": stream}));
    let whole: Value = stage.chat(&trial, &named(false)).await.json().await.unwrap();
    assert_eq!(whole["model"], "claude-opus");
    let stream = stage.chat(&trial, &named(true)).await.text().await.unwrap();
    assert!(stream.contains(r#""model":"claude-opus""#) && !stream.contains(r#""model":"sim""#));
    let unknown = stage.chat(&trial, &request(json!({"model": "gpt"}))).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND, "what is not mapped is upstream's to refuse");
    assert_eq!(stage.calls(&trial).await[0].model, "claude-opus");
}

#[tokio::test]
async fn each_call_has_a_seed_of_its_own() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"seed": 40})).await;
    let mut said = Vec::new();
    for _ in 0..3 {
        let answer: Value = stage.chat(&trial, &request(json!({"seed": 1}))).await.json().await.unwrap();
        said.push(answer["choices"][0]["message"]["content"].to_string());
    }
    assert_eq!(seeds(&stage.calls(&trial).await), [Some(40), Some(41), Some(42)]);
    assert!(said[0] != said[1] && said[1] != said[2], "{said:?}");
}

#[tokio::test]
async fn a_trial_that_has_sampled_its_tokens_is_refused() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"limits": {"max_completion_tokens": 5}})).await;
    let ask = async || stage.chat(&trial, &request(json!({"max_tokens": 4, "ignore_eos": true}))).await;
    assert_eq!(ask().await.status(), StatusCode::OK);
    assert_eq!(ask().await.status(), StatusCode::OK, "a call that has begun is not cut off");
    let refused = ask().await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["error"]["code"], "trial_limit_reached");
}

#[tokio::test]
async fn tokens_that_come_without_ids_count_for_the_limit_too() {
    let answer = json!({"id": "c", "object": "text_completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "text": "a b c d", "logprobs": null, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}});
    let event = |text: &str, finish: Option<&str>| {
        let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish});
        format!("data: {}\n\n", json!({"id": "c", "model": "m", "choices": [choice]})).into_bytes()
    };
    let events = [event("a", None), event(" b", None), event(" c", Some("length")), DONE.into()];
    for script in [
        whole("200 OK", "application/json", &answer.to_string()),
        stream(&events.each_ref().map(|event: &Vec<u8>| &event[..])),
    ] {
        let upstream = RawUpstream::start(vec![script.clone(), script]).await;
        let stage = Stage::before(simulator(None).await, &upstream.url).await;
        let trial = stage.open(json!({"limits": {"max_completion_tokens": 5}})).await;
        // vLLM gives no ids for an echo.
        let body = json!({"model": "m", "prompt": "a", "echo": true}).to_string();
        let ask = async || {
            let response = stage.post(&trial, "/v1/completions", &*body).await;
            (response.status(), response.text().await.unwrap())
        };
        let statuses = [ask().await.0, ask().await.0, ask().await.0];
        assert_eq!(statuses, [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS]);
    }
}

#[tokio::test]
async fn calls_at_once_are_limited_and_the_refusal_passes() {
    let stage = Stage::saying("content = \"one two\"\nstall_after = 1").await;
    let trial = stage.open(json!({"limits": {"max_calls_in_flight": 1}})).await;
    let body = request(json!({"stream": true}));
    let first = stage.chat(&trial, &body).await;
    let refused = stage.chat(&trial, &body).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    drop(first);
    eventually("there is room again", async || stage.chat(&trial, &body).await.status() == StatusCode::OK)
        .await;
}

#[tokio::test]
async fn calls_per_minute_are_limited_and_the_refusal_names_the_wait() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"limits": {"max_calls_per_minute": 2}})).await;
    let body = request(json!({}));
    let statuses = [stage.chat(&trial, &body).await.status(), stage.chat(&trial, &body).await.status()];
    assert_eq!(statuses, [StatusCode::OK; 2]);
    let refused = stage.chat(&trial, &body).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait: u32 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    let error: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(error["error"]["code"], "trial_call_rate");
    let message = error["error"]["message"].as_str().unwrap();
    assert!((1..=31).contains(&wait) && message.contains("the 2 calls per minute"), "{wait}: {message}");
    assert_eq!(stage.status(&trial).await.calls.total, 2, "a refused call is none");
    let (status, error) =
        stage.try_open(json!({"task_id": "t", "limits": {"max_calls_per_minute": 0}})).await;
    assert_eq!(status, 422, "{error}");
}

#[tokio::test]
async fn larger_bodies_than_the_trials_limit_are_413() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"limits": {"max_body_bytes": 300}})).await;
    let long = request(json!({"user": "x".repeat(300)}));
    assert_eq!(stage.chat(&trial, &long).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(stage.chat(&trial, &request(json!({}))).await.status(), StatusCode::OK);
    assert_eq!(stage.calls(&trial).await.len(), 1);
}

#[tokio::test]
async fn a_silent_upstream_is_covered_by_keep_alives_without_a_blank_line() {
    let stage = Stage::saying("content = \"one\"\ndelay_ms = 5400").await;
    let trial = stage.open(json!({})).await;
    let stream = stage.chat(&trial, &request(json!({"stream": true}))).await.text().await.unwrap();
    assert!(stream.contains(": keep-alive\n\ndata: "), "{stream}");
    assert!(stream.ends_with("data: [DONE]\n\n"));
}
