//! Conversations that continue token for token without a local tokenizer: the proxy asks vLLM.

use std::time::Instant;

use reqwest::StatusCode;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::Call;
use rolltap_rollout::continuation::Continuation;
use serde_json::{Value, json};

use crate::harness::Stage;
use crate::recording_upstream::Witness;

const TURNS: usize = 5;

fn tokens(call: &Call) -> (Vec<u32>, Vec<u32>) {
    let prompt = call.prompt_token_ids.iter().map(|&id| id.into()).collect();
    (prompt, call.choices[0].token_ids.iter().map(|&id| id.into()).collect())
}

/// Holds a conversation and returns the time of each turn in milliseconds.
async fn converse(stage: &Stage, base_url: &str, request: &Value) -> Vec<f64> {
    let mut messages = vec![json!({"role": "user", "content": "Tell me of the sea. 日本語 🎉"})];
    let mut times = Vec::new();
    for turn in 0..TURNS {
        let mut body = request.clone();
        body["messages"] = json!(messages);
        let begun = Instant::now();
        let answer = stage.post(base_url, "/chat/completions", &body).await;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        assert_eq!(answer.status(), StatusCode::OK, "turn {turn}");
        let answer: Value = answer.json().await.unwrap();
        let mut message = answer["choices"][0]["message"].clone();
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        message["reasoning_content"] = message["reasoning"].take();
        messages.push(message);
        messages.extend(calls.iter().map(|call| {
            json!({"role": "tool", "tool_call_id": call["id"], "content": format!("blue, {turn} times")})
        }));
        if calls.is_empty() {
            messages.push(json!({"role": "user", "content": format!("And then, {turn}?")}));
        }
    }
    times
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn tokens_are_preserved_by_asking_vllm() {
    let (_witness, address) = Witness::start_elsewhere().await;
    let stage = Stage::before(format!("http://{address}")).await;
    let tool = json!({"type": "function", "function": {"name": "look", "description": "Look.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string", "enum": ["sky", "sea"]}}, "required": ["at"]}}});
    let no_thinking = json!({"enable_thinking": false});
    let plain = json!({"model": "tiny", "max_tokens": 12, "seed": 7, "chat_template_kwargs": no_thinking});
    let tools = json!({"model": "tiny", "max_tokens": 60, "tools": [tool], "tool_choice": "required",
        "chat_template_kwargs": no_thinking});
    for request in [plain, tools] {
        // The template may show the tiny model's answers differently. This test checks only that their tokens are
        // preserved.
        let open = json!({"task_id": "real", "history": "sampled"});
        let opened = stage.http.post(stage.admin("/v1/trials")).json(&open).send().await.unwrap();
        let trial: TrialOpened = opened.json().await.unwrap();
        let times = converse(&stage, &trial.base_urls.openai, &request).await;
        let calls = stage.calls(&trial).await;
        for (turn, pair) in calls.windows(2).enumerate() {
            let ((prompt, sampled), (next, _)) = (tokens(&pair[0]), tokens(&pair[1]));
            let kept = matches!(pair[1].continuation, Some(Continuation::Spliced { .. }));
            assert!(kept, "turn {}: {:?}", turn + 1, pair[1].continuation);
            assert!(next.starts_with(&[prompt, sampled].concat()), "turn {}", turn + 1);
        }
        assert_eq!(stage.rollout(&trial).await.len(), 1, "one branch; turns took {times:?} ms");
    }
}
