//! The official Anthropic client for Python, streaming and not, and a comparison with vLLM's own Messages API.

use rolltap_rollout::call::{CallStatus, Dialect};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{Stage, testbed};

#[tokio::test]
#[ignore = "needs vLLM and Python: run ./scripts/test"]
async fn the_official_client_understands_every_answer() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/messages_client.py");
    let mut client = Command::new(testbed("ROLLTAP_TESTBED_PYTHON"));
    let output =
        client.args([script, trial.base_urls.openai.trim_end_matches("/v1")]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();

    for asked in ["thought", "plain", "called", "answered"] {
        let (whole, streamed) = (&seen[asked]["whole"], &seen[asked]["streamed"]);
        for key in ["stop_reason", "stop_sequence", "model", "role", "type"] {
            assert_eq!(whole[key], streamed[key], "{asked}: {key}");
        }
        assert_eq!(without_ids(&whole["content"]), without_ids(&streamed["content"]), "{asked}");
        assert_eq!(whole["usage"]["output_tokens"], streamed["usage"]["output_tokens"], "{asked}");
        let events = seen[asked]["events"].as_array().unwrap();
        assert_eq!((&events[0], events.last().unwrap()), (&json!("message_start"), &json!("message_stop")));
    }
    assert_eq!(seen["thought"]["whole"]["content"][0]["type"], "thinking");
    assert_eq!(seen["plain"]["whole"]["content"][0]["type"], "text");
    assert_eq!(seen["called"]["whole"]["content"][0]["name"], "look");
    assert_eq!(seen["counted"], input_tokens(&seen["answered"]["whole"]));
    for (asked, said) in [
        ("image", "tiny is not a multimodal model"),
        ("long", "prompt is too long: "),
        ("greedy", "input length and `max_tokens` exceed context limit: 0 + 100000 > "),
        ("search", "tools[0] is \"web_search_20250305\""),
    ] {
        assert!(seen[asked].as_str().unwrap().starts_with(said), "{asked}: {}", seen[asked]);
    }

    let calls = stage.calls(&trial).await;
    let answered: Vec<_> = calls.iter().filter(|call| call.status == CallStatus::Complete).collect();
    assert_eq!((calls.len(), answered.len()), (12, 8));
    for call in answered {
        assert_eq!((call.dialect, &call.flaws[..], call.is_trainable()), (Dialect::Messages, &[][..], true));
        assert_eq!(call.choices[0].token_ids.len(), call.choices[0].logprobs.len());
    }
    let ids = |at: usize| calls[at].choices[0].token_ids.len();
    assert_eq!(json!(ids(0)), seen["called"]["whole"]["usage"]["output_tokens"]);
}

/// The prompt equals that of vLLM's own Messages API, for fields that both translate alike.
#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn the_prompt_is_vllms_own() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    let ours = trial.base_urls.openai.trim_end_matches("/v1");
    let tool = json!({"name": "look", "description": "Looks", "input_schema": {"properties": {"at": {"type": "string"}}}});
    let turns = json!([
        {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "text", "text": "Twice."}]},
        {"role": "system", "content": "Hurry."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "where?", "signature": "s"}, {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "sky", "n": 1.5}},
            {"type": "tool_use", "id": "b", "name": "look", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "blue"},
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}], "is_error": true},
        ]},
    ]);
    let system = json!([{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1;"},
        {"type": "text", "text": "One."}, {"type": "text", "text": "\nTwo."}]);
    for extra in [
        json!({}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
    ] {
        let mut body =
            json!({"model": "tiny", "max_tokens": 1, "system": system, "messages": turns, "tools": [tool]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let answer = stage.post(ours, "/v1/messages", &body).await;
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        answer.text().await.unwrap();
        let rendered: Value =
            stage.post(&stage.vllm, "/v1/messages/render", &body).await.json().await.unwrap();
        let call = stage.calls(&trial).await.pop().unwrap();
        assert_eq!(json!(call.prompt_token_ids), rendered["token_ids"], "{extra}");
    }
}

fn without_ids(content: &Value) -> Vec<Value> {
    let mut blocks = content.as_array().unwrap().clone();
    for block in &mut blocks {
        block.as_object_mut().unwrap().retain(|key, value| key != "id" && !value.is_null());
    }
    blocks
}

fn input_tokens(message: &Value) -> Value {
    let usage = &message["usage"];
    let count = |key: &str| usage[key].as_u64().unwrap_or(0);
    json!(count("input_tokens") + count("cache_read_input_tokens"))
}
