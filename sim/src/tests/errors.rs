//! Rejected requests: status and body are vLLM's, to the letter for requests that were recorded.

use serde_json::{Value, json};

use super::{ask, fixture, post, recorded_model, send};
use crate::VOCABULARY_SIZE;

#[tokio::test]
async fn recorded_refusals_are_equal() {
    let sim = recorded_model(None).await;
    for fixture in [
        fixture!("err_404"),
        fixture!("err_405"),
        fixture!("err_bad_model"),
        fixture!("err_content_type"),
        fixture!("err_ctx_overflow"),
        fixture!("err_malformed"),
        fixture!("err_max_tokens_too_big"),
        fixture!("err_missing_messages"),
        fixture!("err_temp"),
        fixture!("err_toplogprobs_too_big"),
        fixture!("err_type"),
    ] {
        let response = send(&sim, &fixture).await;
        assert_eq!(response.status().as_u16(), fixture["response"]["status"], "{}", fixture["request"]);
        assert_eq!(
            response.headers().get("allow").map(|allow| allow.to_str().unwrap()),
            fixture["response"]["headers"]["allow"].as_str()
        );
        assert_eq!(response.text().await.unwrap(), fixture["response"]["body"].to_string());
    }
    let mut streamed = fixture!("err_ctx_overflow");
    streamed["request"]["body"]["stream"] = json!(true);
    let response = send(&sim, &streamed).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.json::<Value>().await.unwrap(), streamed["response"]["body"]);
    assert_eq!(sim.stats().requests, 0);
}

#[tokio::test]
async fn other_refusals_name_the_fault() {
    let sim = recorded_model(None).await;
    for (extra, part) in [
        (
            json!({"stream": "yes"}),
            "'loc': 'body.stream', 'msg': 'Input should be a valid boolean', 'input': 'yes'",
        ),
        (json!({"max_tokens": 0}), "max_tokens must be at least 1, got 0."),
        (json!({"max_tokens": 1.5}), "'loc': 'body.max_tokens'"),
        (json!({"n": 0}), "n must be at least 1, got 0."),
        (json!({"n": 1_000_000}), "n must be at most 128"),
        (json!({"top_p": 2}), "top_p must be in (0, 1], got 2.0."),
        (json!({"top_logprobs": 1}), "`logprobs` must be set to true"),
        (json!({"stop": [1]}), "body.stop"),
        (json!({"stop": ""}), "stop cannot contain an empty string"),
        (json!({"stream_options": {"include_usage": true}}), "Stream options"),
        (json!({"echo": true}), "`echo`"),
        (json!({"kv_transfer_params": {"prompt_token_ids": [VOCABULARY_SIZE]}}), "is out of vocabulary"),
        (
            json!({"kv_transfer_params": {"prompt_token_ids": "1"}}),
            "body.kv_transfer_params.prompt_token_ids",
        ),
        (json!({"kv_transfer_params": {"prompt_token_ids": []}}), "cannot be empty"),
        (
            json!({"kv_transfer_params": {"prompt_token_ids": vec![1; 5000]}}),
            "Input length (5000) exceeds model's maximum context length (4096).",
        ),
        (json!({"messages": [{"content": "x"}]}), "'loc': 'body.messages.0.role', 'msg': 'Field required'"),
        (json!({"messages": ["x"]}), "body.messages.0"),
        (json!({"messages": [{"role": "alien", "content": "x"}]}), "Unexpected message role"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "image_url"),
    ] {
        let response = ask(&sim, "hi", extra.clone()).await;
        assert_eq!(response.status().as_u16(), 400, "{extra}");
        let body: Value = response.json().await.unwrap();
        assert!(body["error"]["message"].as_str().unwrap().contains(part), "{body}");
        assert_eq!(body["error"]["code"], 400);
    }
    assert_eq!(
        post(&sim, "/detokenize", &json!({"tokens": [1 << 20]})).await.unwrap().status().as_u16(),
        400
    );
    assert_eq!(
        post(&sim, "/tokenize", &json!({"model": "other", "prompt": ""})).await.unwrap().status().as_u16(),
        404
    );
}
