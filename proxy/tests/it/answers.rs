//! The words of calls: `GET /v1/trials/{id}/answers`, and `messages=true` of calls, rows and the feed.

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

/// Returns the lines of a path of the admin plane as JSON.
async fn lines(stage: &Stage, path: &str) -> Vec<Value> {
    let text = stage.http.get(stage.admin(path)).send().await.unwrap().text().await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn calls_rows_and_the_feed_have_messages_on_request() {
    let stage = Stage::saying(TOOL_CALL).await;
    let trial = stage.open(json!({})).await;
    let tools = json!([{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]);
    let asked = request(json!({"max_tokens": 100, "tools": tools}));
    assert_eq!(stage.chat(&trial, &asked).await.status(), 200);
    // Completions have no messages.
    stage.post(&trial, "/v1/completions", json!({"model": "sim", "prompt": "Hello"}).to_string()).await;
    stage.seal(&trial).await;
    stage.reward(&trial, json!({"rewards": {"reward": 1.0}})).await;
    let path = format!("/v1/trials/{}", trial.trial_id);

    let [chat, completion] = &lines(&stage, &format!("{path}/calls?messages=true")).await[..] else {
        panic!("two calls")
    };
    assert_eq!((&chat["messages"], &chat["tools"]), (&asked["messages"], &tools));
    let answer = &chat["answers"][0];
    assert_eq!((&answer["choice_index"], &answer["message"]["role"]), (&json!(0), &json!("assistant")));
    assert_eq!(answer["message"]["tool_calls"][0]["function"]["name"], "bash");
    assert_eq!((&completion["messages"], &completion["answers"]), (&Value::Null, &json!([])));
    let plain = &lines(&stage, &format!("{path}/calls")).await[0];
    assert_eq!((plain.get("messages"), &plain["call_id"]), (None, &chat["call_id"]));

    let rows = lines(&stage, &format!("{path}/rollout?messages=true")).await;
    let span = &rows[0]["calls"][0];
    let words = |name: &str| serde_json::from_str::<Value>(span[name].as_str().unwrap()).unwrap();
    assert_eq!(words("messages"), json!([asked["messages"][0], answer["message"]]));
    assert_eq!(words("tools"), tools);
    assert_eq!(lines(&stage, "/v1/rollouts?messages=true").await[0]["rows"], json!(rows));
    let without = lines(&stage, "/v1/rollouts").await;
    assert_eq!(without[0]["rows"][0]["calls"][0]["messages"], Value::Null);
}

#[tokio::test]
async fn prepared_rows_have_no_messages() {
    let stage = Stage::saying(TOOL_CALL).await;
    let trial = stage.open(json!({})).await;
    for path in [format!("/v1/trials/{}/rollout", trial.trial_id), "/v1/rollouts".to_owned()] {
        let url = stage.admin(&format!("{path}?messages=true&prepare=train"));
        let (status, body) = answer(stage.http.get(url)).await;
        let told = body["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && told.contains("messages and prepare exclude each other"), "{status} {body}");
    }
}
