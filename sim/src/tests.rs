//! The simulator over HTTP: its answers compared with a real vLLM's, and its behaviour.

mod behaviour;
mod errors;
mod kv_cache;
mod shapes;
mod streams;

use serde_json::{Value, json};

use super::{RunningSim, Script, Settings, start};

/// A recorded request and answer of vLLM.
macro_rules! fixture {
    ($name:literal) => {
        serde_json::from_str::<serde_json::Value>(include_str!(concat!(
            "../../../proxy/tests/fixtures/vllm/",
            $name,
            ".json"
        )))
        .unwrap()
    };
}
/// The recorded events of a streamed answer.
macro_rules! events {
    ($name:literal) => {
        include_str!(concat!("../../../proxy/tests/fixtures/vllm/", $name, ".sse"))
    };
}
use {events, fixture};

/// Starts a simulator of the recorded model.
async fn recorded_model(script: Option<&str>) -> RunningSim {
    let script = script.map(|answer| {
        let text = format!("[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\n{answer}");
        Script::from_toml(&text, "test").unwrap()
    });
    let settings = Settings { model: "tiny".to_owned(), max_model_len: 4096, script, ..Settings::default() };
    start(settings).await.unwrap()
}

/// Sends a recorded request.
async fn send(sim: &RunningSim, fixture: &Value) -> reqwest::Response {
    let request = &fixture["request"];
    let method = request["method"].as_str().unwrap().parse().unwrap();
    let url = format!("http://{}{}", sim.addr(), request["path"].as_str().unwrap());
    let mut call = rolltap_testing::http_client().request(method, url);
    if !request["body"].is_null() {
        let kind = request["headers"]["Content-Type"].as_str().unwrap_or("application/json");
        let text = request["body"].as_str().map_or_else(|| request["body"].to_string(), str::to_owned);
        call = call.header("content-type", kind).body(text);
    }
    call.send().await.unwrap()
}

/// Posts a chat request of one user message, with `extra` keys.
async fn ask(sim: &RunningSim, text: &str, extra: Value) -> reqwest::Response {
    let mut body = json!({"messages": [{"role": "user", "content": text}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    post(sim, "/v1/chat/completions", &body).await.unwrap()
}

async fn post(sim: &RunningSim, path: &str, body: &Value) -> reqwest::Result<reqwest::Response> {
    let url = format!("http://{}{path}", sim.addr());
    rolltap_testing::http_client().post(url).json(body).send().await
}

/// Returns the JSON events of a stream. Its last event must be `[DONE]`, which is omitted.
fn parse_events(text: &str) -> Vec<Value> {
    let lines: Vec<&str> = text.split_terminator("\n\n").filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lines.last().copied().map(str::trim), Some("data: [DONE]"));
    let json = |line: &&str| serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
    lines[..lines.len() - 1].iter().map(json).collect()
}
