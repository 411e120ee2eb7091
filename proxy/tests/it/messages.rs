//! The Messages API as agents call it, in front of a simulated upstream.

use reqwest::{Response, StatusCode};
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::{CallStatus, Dialect};
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::harness::Stage;

const SCRIPT: &str = "reasoning = 'A file is wanted.'\ncontent = 'I look.'\n\
    tool_calls = [{ name = 'look', arguments = { at = 'sky' } }, { name = 'look', arguments = { at = 'sea' } }]";

fn request(extra: Value) -> Value {
    let mut body = json!({"model": "sim", "max_tokens": 200, "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

async fn post(stage: &Stage, trial: &TrialOpened, path: &str, body: &Value) -> Response {
    let base = trial.base_urls.openai.trim_end_matches("/v1");
    stage.http.post(format!("{base}{path}?beta=true")).json(body).send().await.unwrap()
}

async fn messages(stage: &Stage, trial: &TrialOpened, body: &Value) -> Response {
    post(stage, trial, "/v1/messages", body).await
}

fn data(stream: &str) -> Vec<Value> {
    let lines = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn thinking_text_and_tools_come_whole_and_streamed_and_every_token_is_recorded() {
    let stage = Stage::saying(SCRIPT).await;
    let trial = stage.open(json!({})).await;
    let whole = messages(&stage, &trial, &request(json!({}))).await;
    assert_eq!(whole.headers()["content-type"], "application/json");
    let whole: Value = whole.json().await.unwrap();
    let kinds: Vec<_> =
        whole["content"].as_array().unwrap().iter().map(|block| block["type"].clone()).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!((&whole["stop_reason"], &whole["model"]), (&json!("tool_use"), &json!("sim")));
    assert_eq!(whole["content"][3]["input"], json!({"at": "sea"}));

    let stream = messages(&stage, &trial, &request(json!({"stream": true}))).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream; charset=utf-8");
    let events = data(&stream.text().await.unwrap());
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let starts = events.iter().filter(|event| event["type"] == "content_block_start");
    assert_eq!(starts.map(|event| event["content_block"]["type"].clone()).collect::<Vec<_>>(), kinds);
    assert_eq!(events[events.len() - 2]["usage"]["output_tokens"], whole["usage"]["output_tokens"]);

    eventually("both calls are recorded", async || stage.calls(&trial).await.len() == 2).await;
    for call in stage.calls(&trial).await {
        assert_eq!(
            (call.status, call.dialect, &call.flaws[..]),
            (CallStatus::Complete, Dialect::Messages, &[][..])
        );
        assert_eq!(json!(call.choices[0].token_ids.len()), whole["usage"]["output_tokens"]);
        assert_eq!(json!(call.prompt_token_ids.len()), events[0]["message"]["usage"]["input_tokens"]);
    }
}

#[tokio::test]
async fn turns_of_a_conversation_become_one_branch() {
    let stage = Stage::saying(SCRIPT).await;
    let trial = stage.open(json!({})).await;
    let mut turns = vec![json!({"role": "user", "content": "Hello"})];
    for turn in 0..3 {
        let header = format!("x-anthropic-billing-header: cc_version=2; cch={turn};");
        let system = json!([{"type": "text", "text": header}, {"type": "text", "text": "Be brief."}]);
        let body = request(json!({"messages": turns, "system": system, "stream": false}));
        let answer: Value = messages(&stage, &trial, &body).await.json().await.unwrap();
        // The results have another order than the calls, as with real agents.
        let calls = answer["content"].as_array().unwrap().iter().filter(|block| block["type"] == "tool_use");
        let result = |call: &Value| json!({"type": "tool_result", "tool_use_id": call["id"], "content": format!("{}", call["input"])});
        let results: Vec<_> = calls.rev().map(result).collect();
        turns.push(json!({"role": "assistant", "content": answer["content"]}));
        turns.push(json!({"role": "user", "content": results}));
    }
    stage.seal(&trial).await;
    let rows = stage.rollout(&trial).await;
    assert_eq!((rows.len(), rows[0].calls.len()), (1, 3));
}

#[tokio::test]
async fn tokens_are_counted_as_upstream_counts_the_prompt() {
    let stage = Stage::saying(SCRIPT).await;
    let trial = stage.open(json!({})).await;
    let body = request(json!({"system": "Be brief."}));
    let mut of_prompt = body.clone();
    of_prompt.as_object_mut().unwrap().remove("max_tokens");
    let counted: Value =
        post(&stage, &trial, "/v1/messages/count_tokens", &of_prompt).await.json().await.unwrap();
    let answer: Value = messages(&stage, &trial, &body).await.json().await.unwrap();
    assert_eq!(counted, json!({"input_tokens": answer["usage"]["input_tokens"]}));
    assert_eq!(stage.calls(&trial).await.len(), 1, "counting is no call");
}

#[tokio::test]
async fn errors_have_anthropics_shape_and_words() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let long = request(json!({"messages": [{"role": "user", "content": "hello ".repeat(100_000)}]}));
    let web = request(json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}));
    for (body, status, kind, said) in [
        (
            &long,
            StatusCode::BAD_REQUEST,
            "invalid_request_error",
            "prompt is too long: 32769 tokens > 32768 maximum",
        ),
        (&web, StatusCode::BAD_REQUEST, "invalid_request_error", "tools[0] is \"web_search_20250305\""),
        (
            &request(json!({"model": "nobody"})),
            StatusCode::NOT_FOUND,
            "not_found_error",
            "The model `nobody`",
        ),
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = json!(stream);
            let answer = messages(&stage, &trial, &body).await;
            assert_eq!(answer.status(), status);
            let answer: Value = answer.json().await.unwrap();
            assert_eq!((&answer["type"], &answer["error"]["type"]), (&json!("error"), &json!(kind)));
            assert!(answer["error"]["message"].as_str().unwrap().starts_with(said), "{answer}");
        }
    }
    let unknown =
        stage.http.post(stage.agent("/v1/messages")).json(&request(json!({}))).send().await.unwrap();
    assert_eq!(unknown.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(unknown.json::<Value>().await.unwrap()["error"]["type"], "authentication_error");
}
