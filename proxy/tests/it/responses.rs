//! The Responses dialect, from the agent's side of the proxy.

use reqwest::{Response, StatusCode};
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::{CallStatus, Dialect};
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::harness::Stage;

const SAID: &str = r#"reasoning = "A list is wanted."
content = "I list."
tool_calls = [{ name = "ls", arguments = { path = "." } }, { name = "patch", arguments = { input = "*** Begin" } }]"#;

async fn ask(stage: &Stage, trial: &TrialOpened, extra: Value) -> Response {
    let mut body = json!({"model": "sim", "input": "Hello", "max_output_tokens": 64,
        "tools": [{"type": "function", "name": "ls"}, {"type": "custom", "name": "patch"}, {"type": "web_search"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let url = format!("{}/responses", trial.base_urls.openai);
    stage.http.post(url).json(&body).send().await.unwrap()
}

fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Removes the ids, which differ between any two calls.
fn without_ids(output: &Value) -> Vec<Value> {
    let mut items = output.as_array().unwrap().clone();
    for item in &mut items {
        item.as_object_mut().unwrap().retain(|key, _| key != "id" && key != "call_id");
    }
    items
}

#[tokio::test]
async fn an_answer_is_items_streamed_or_not_and_is_recorded_whole() {
    let stage = Stage::saying(SAID).await;
    let trial = stage.open(json!({})).await;
    let whole: Value = ask(&stage, &trial, json!({})).await.json().await.unwrap();
    let streamed = ask(&stage, &trial, json!({"stream": true})).await;
    assert_eq!(streamed.headers()["content-type"], "text/event-stream; charset=utf-8");
    let events = events(&streamed.text().await.unwrap());
    let last = events.last().unwrap();
    assert_eq!(
        (&events[0]["type"], &last["type"]),
        (&json!("response.created"), &json!("response.completed"))
    );
    assert_eq!(without_ids(&whole["output"]), without_ids(&last["response"]["output"]));
    let kinds: Vec<_> =
        without_ids(&whole["output"]).iter().map(|item| item["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call", "custom_tool_call"]);
    assert_eq!(whole["output"][2]["arguments"], r#"{"path":"."}"#);
    assert_eq!(whole["output"][3]["input"], "*** Begin");

    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), 2);
    for call in &calls {
        assert_eq!(
            (call.status, &call.flaws[..], call.dialect),
            (CallStatus::Complete, &[][..], Dialect::Responses)
        );
        assert_eq!(json!(call.choices[0].token_ids.len()), whole["usage"]["output_tokens"]);
        assert_eq!(json!(call.prompt_token_ids.len()), whole["usage"]["input_tokens"]);
    }
}

#[tokio::test]
async fn a_response_is_continued_within_its_trial_only() {
    let stage = Stage::random().await;
    let (trial, other) = (stage.open(json!({})).await, stage.open(json!({})).await);
    let first: Value = ask(&stage, &trial, json!({"instructions": "Be brief."})).await.json().await.unwrap();
    let more =
        json!({"input": "And then?", "previous_response_id": first["id"], "instructions": "Be brief."});
    let second: Value = ask(&stage, &trial, more.clone()).await.json().await.unwrap();
    assert_eq!(second["previous_response_id"], first["id"]);
    let elsewhere = ask(&stage, &other, more).await;
    assert_eq!(elsewhere.status(), StatusCode::BAD_REQUEST);
    let error: Value = elsewhere.json().await.unwrap();
    assert_eq!(error["error"]["param"], "previous_response_id");

    let calls = stage.calls(&trial).await;
    assert!(calls[1].prompt_token_ids.starts_with(&calls[0].prompt_token_ids));
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_is_openais_error() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let input = "many words ".repeat(40_000);
    let whole = ask(&stage, &trial, json!({"input": input})).await;
    assert_eq!(whole.status(), StatusCode::BAD_REQUEST);
    let error: Value = whole.json().await.unwrap();
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    let streamed = ask(&stage, &trial, json!({"input": input, "stream": true})).await;
    assert_eq!(streamed.status(), StatusCode::OK);
    let events = events(&streamed.text().await.unwrap());
    let failed = events.last().unwrap();
    assert_eq!(failed["type"], "response.failed");
    assert_eq!(failed["response"]["error"]["code"], "context_length_exceeded");
    eventually("both are recorded", async || stage.calls(&trial).await.len() == 2).await;
    assert!(stage.calls(&trial).await.iter().all(|call| call.status == CallStatus::Failed));
}

#[tokio::test]
async fn errors_keep_their_status() {
    let stage = Stage::saying(r#"error = { status = 503, message = "overloaded" }"#).await;
    let trial = stage.open(json!({})).await;
    for stream in [false, true] {
        let refused = ask(&stage, &trial, json!({"stream": stream})).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        let error: Value = refused.json().await.unwrap();
        assert_eq!(
            (&error["error"]["type"], &error["error"]["message"]),
            (&json!("server_error"), &json!("overloaded"))
        );
    }
    let wrong = ask(&stage, &trial, json!({"background": true})).await;
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    let error: Value = wrong.json().await.unwrap();
    assert_eq!(error["error"]["param"], "background");
}
