//! `GET /v1/trials/{id}/answers`: the recorded answers as chat messages.

use rolltap_proxy::api::CapturedAnswer;
use serde_json::{Value, json};

use crate::harness::{Stage, answer, request};

const TOOL_CALL: &str = r#"tool_calls = [{ name = "bash", arguments = '{"command": "cat notes"}' }]"#;

async fn answers(stage: &Stage, trial: &str) -> Vec<CapturedAnswer> {
    let url = stage.admin(&format!("/v1/trials/{trial}/answers"));
    let text = stage.http.get(url).send().await.unwrap().text().await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn answers_of_every_dialect_are_chat_messages_with_their_tool_calls() {
    let stage = Stage::saying(TOOL_CALL).await;
    let trial = stage.open(json!({})).await;
    let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    let user = json!([{"role": "user", "content": "Hello"}]);
    let chat = request(
        json!({"max_tokens": 100, "tools": [{"type": "function", "function": {"name": "bash", "parameters": schema}}]}),
    );
    let messages = json!({"model": "sim", "max_tokens": 100, "messages": user,
        "tools": [{"name": "bash", "input_schema": schema}]});
    let responses = json!({"model": "sim", "input": "Hello",
        "tools": [{"type": "function", "name": "bash", "parameters": schema}]});
    for (path, body) in
        [("/v1/chat/completions", chat), ("/v1/messages", messages), ("/v1/responses", responses)]
    {
        let response = stage.post(&trial, path, body.to_string()).await;
        assert_eq!(response.status(), 200, "{path}: {}", response.text().await.unwrap());
    }
    // Completions have no messages.
    stage.post(&trial, "/v1/completions", json!({"model": "sim", "prompt": "Hello"}).to_string()).await;
    let id = trial.trial_id.to_string();
    let open = answers(&stage, &id).await;
    stage.seal(&trial).await;
    let stage = stage.restarted().await;
    let found = answers(&stage, &id).await;
    assert_eq!(found, open, "the same before the seal and after a restart");
    let calls = stage.calls(&trial).await;
    assert_eq!((found.len(), calls.len()), (3, 4));
    for (answer, call) in found.iter().zip(&calls) {
        assert_eq!((&answer.call_id, answer.choice_index), (&call.call_id, 0));
        let function = &answer.message["tool_calls"][0]["function"];
        assert!(function["arguments"].is_string(), "{answer:?}");
        let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        assert_eq!((&function["name"], &arguments["command"]), (&json!("bash"), &json!("cat notes")));
    }
    let unknown = answer(stage.http.get(stage.admin("/v1/trials/nobody/answers"))).await;
    assert_eq!(unknown.0, 404);
}
