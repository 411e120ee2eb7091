//! For requests that a real vLLM answered: the same keys in the same order with values of the same types.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{events, fixture, parse_events, recorded_model, send};
use crate::encode;

/// Returns a value without its content: keys in order, types, and the kinds of elements of a list.
fn shape(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_f64() => "float".to_owned(),
        Value::Number(_) => "int".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(items) => {
            let kinds: BTreeSet<String> = items.iter().map(shape).collect();
            format!("[{}]", kinds.into_iter().collect::<Vec<_>>().join(" | "))
        }
        Value::Object(map) => {
            let field = |(key, value): (&String, &Value)| match key.as_str() {
                // The bytes are empty for a part of a character, and the presence of one is random.
                "bytes" => "bytes".to_owned(),
                // A grammar stopped the recorded tool calls, and the simulator has none.
                "stop_reason" if value.is_i64() => "stop_reason: null".to_owned(),
                _ => format!("{key}: {}", shape(value)),
            };
            format!("{{{}}}", map.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

async fn same_document(fixture: Value, script: Option<&str>) {
    let sim = recorded_model(script).await;
    let response = send(&sim, &fixture).await;
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(
        response.headers()["content-type"].to_str().unwrap(),
        fixture["response"]["headers"]["content-type"]
    );
    let body: Value = response.json().await.unwrap();
    assert_eq!(shape(&body), shape(&fixture["response"]["body"]));
    sim.shutdown().await;
}

async fn same_events(fixture: Value, recorded: &str, script: Option<&str>) {
    let sim = recorded_model(script).await;
    let response = send(&sim, &fixture).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let ours = parse_events(&response.text().await.unwrap());
    let theirs = parse_events(recorded);
    // The tokenizer decides how a text is split. So only the first and last events and the kinds in between are
    // compared.
    let outline = |events: &[Value]| {
        let shapes: Vec<String> = events.iter().map(shape).collect();
        let kinds: BTreeSet<String> = shapes.iter().cloned().collect();
        (shapes.first().cloned(), shapes.last().cloned(), kinds)
    };
    assert_eq!(outline(&ours), outline(&theirs));
    sim.shutdown().await;
}

const REASONING: &str = "reasoning = 'the list of files in the directory is what the user wants to see here'";
const CONTENT: &str = "content = 'the list of files in the directory is what the user wants to see here'";
const TOOL_CALL: &str =
    "content = 'ok'\ntool_calls = [{ name = 'get_weather', arguments = '{\"city\": \"mbletere\"}' }]";

#[tokio::test]
async fn documents() {
    same_document(fixture!("content_plain"), None).await;
    same_document(fixture!("content_tokids"), None).await;
    same_document(fixture!("chat_prompt_text"), Some(REASONING)).await;
    same_document(fixture!("chat_logprobs"), Some(REASONING)).await;
    same_document(fixture!("chat_n2"), Some(REASONING)).await;
    same_document(fixture!("chat_include_reasoning_false"), Some(REASONING)).await;
    same_document(fixture!("tools_auto_tokids"), Some(TOOL_CALL)).await;
    same_document(fixture!("stop_str_inc0"), Some("content = 'alpha beta gamma delta'")).await;
}

#[tokio::test]
async fn streams() {
    same_events(fixture!("content_stream_plain"), events!("content_stream_plain"), Some(CONTENT)).await;
    same_events(fixture!("content_stream_tokids"), events!("content_stream_tokids"), Some(CONTENT)).await;
    same_events(fixture!("chat_stream_usage"), events!("chat_stream_usage"), Some(REASONING)).await;
    same_events(fixture!("chat_stream_usage_cont"), events!("chat_stream_usage_cont"), Some(REASONING)).await;
    let hidden = events!("chat_stream_include_reasoning_false");
    same_events(fixture!("chat_stream_include_reasoning_false"), hidden, Some(REASONING)).await;
    same_events(fixture!("tools_auto_stream_plain"), events!("tools_auto_stream_plain"), Some(TOOL_CALL))
        .await;
    same_events(fixture!("tools_auto_stream_tokids"), events!("tools_auto_stream_tokids"), Some(TOOL_CALL))
        .await;
    let mut stopped = fixture!("stop_str_inc0_stream");
    stopped["request"]["body"]["stop"] = serde_json::json!(["rst"]); // ends within a token, like the recorded stop string
    same_events(stopped, events!("stop_str_inc0_stream"), Some("content = 'one the first time'")).await;
    let partial = Some("content = '日本語🎉 é'");
    same_events(fixture!("utf8_stream_tokids"), events!("utf8_stream_tokids"), partial).await;
    let cut = Some("reasoning = 'é one two three four five six seven eight'");
    same_events(fixture!("chat_stream_n2"), events!("chat_stream_n2"), cut).await;
}

#[tokio::test]
async fn side_routes() {
    for fixture in [
        fixture!("models"),
        fixture!("tokenize_chat"),
        fixture!("tokenize_prompt"),
        fixture!("detokenize"),
        fixture!("version"),
    ] {
        let mut fixture = fixture;
        if fixture["request"]["path"] == "/detokenize" {
            fixture["request"]["body"]["tokens"] = serde_json::json!([97, 98]); // the recorded ids belong to a larger vocabulary
        }
        same_document(fixture, None).await;
    }
    let sim = recorded_model(None).await;
    for path in ["health", "ping"] {
        let response = rolltap_testing::get(format!("http://{}/{path}", sim.addr())).await.unwrap();
        assert_eq!((response.status().as_u16(), response.text().await.unwrap()), (200, String::new()));
    }
}

#[tokio::test]
async fn what_stops_an_answer() {
    let sim = recorded_model(Some("content = 'alpha beta gamma delta'")).await;
    let stop = fixture!("stop_str_inc0");
    let ours: Value = send(&sim, &stop).await.json().await.unwrap();
    let theirs = &stop["response"]["body"]["choices"][0];
    for key in ["message", "finish_reason", "stop_reason"] {
        assert_eq!(ours["choices"][0][key], theirs[key]);
    }
    let mut by_token = fixture!("stop_token_ids");
    by_token["request"]["body"]["stop_token_ids"] = serde_json::json!(encode(" g"));
    let ours: Value = send(&sim, &by_token).await.json().await.unwrap();
    assert_eq!(ours["choices"][0]["stop_reason"], encode(" g")[0]);
    assert_eq!(ours["choices"][0]["finish_reason"], "stop");
    assert_eq!(ours["choices"][0]["token_ids"].as_array().unwrap().last().unwrap(), encode(" g")[0]);
    assert_eq!(ours["choices"][0]["message"]["content"], "alpha beta");
}
