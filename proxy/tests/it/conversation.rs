//! Conversations of an agent with the small model through a proxy, and their records.

use std::path::PathBuf;

use reqwest::StatusCode;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::Call;
use rolltap_rollout::continuation::Continuation;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Stage, request, settings, simulator};
use crate::model_server::{Ids, ModelServer, model_dir};

/// No prompt is too long.
pub(crate) const ROOM: usize = usize::MAX;

/// Starts a proxy in front of a server of the small model.
pub(crate) async fn staged(ids: Ids, room: usize) -> (ModelServer, Stage) {
    let server = ModelServer::start(ids, room).await;
    let stage = staged_before(&server, Some(model_dir())).await;
    (server, stage)
}

/// Starts a proxy in front of this server, with this tokenizer if any.
pub(crate) async fn staged_before(server: &ModelServer, tokenizer: Option<PathBuf>) -> Stage {
    let data = TempDir::new().unwrap();
    let mut settings = settings(&server.url, &data);
    settings.render.tokenizer = tokenizer;
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    Stage { upstream: simulator(None).await, proxy, data, http: rolltap_testing::http_client() }
}

pub(crate) fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

pub(crate) fn assistant(content: &str) -> Value {
    json!({"role": "assistant", "content": content})
}

/// Sends a request. Returns the status and the content of the answer, or the error's message.
pub(crate) async fn ask(
    stage: &Stage,
    trial: &TrialOpened,
    messages: &[Value],
    stream: bool,
) -> (StatusCode, String) {
    let answer = stage.chat(trial, &request(json!({"messages": messages, "stream": stream}))).await;
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert!(!text.contains("token_ids\":["), "what was injected is taken out: {text}");
    if status != StatusCode::OK {
        let error: Value = serde_json::from_str(&text).unwrap();
        return (status, error["error"]["message"].as_str().unwrap().to_owned());
    }
    let content = match stream {
        true => {
            let events =
                text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
            let delta = |data: &str| {
                serde_json::from_str::<Value>(data).unwrap()["choices"][0]["delta"]["content"].clone()
            };
            events.map(|data| delta(data).as_str().unwrap_or_default().to_owned()).collect()
        }
        false => {
            let answer: Value = serde_json::from_str(&text).unwrap();
            answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
        }
    };
    (status, content)
}

pub(crate) fn prompt_of(call: &Call) -> Vec<u32> {
    call.prompt_token_ids.iter().map(|&id| id.into()).collect()
}

/// Returns the ids of prompt and answer.
pub(crate) fn whole_of(call: &Call) -> Vec<u32> {
    prompt_of(call).into_iter().chain(call.choices[0].token_ids.iter().map(|&id| id.into())).collect()
}

/// Returns the continuation of a call's prompt in one word.
pub(crate) fn word(call: &Call) -> String {
    match call.continuation.as_ref() {
        None => "no continuation".to_owned(),
        Some(Continuation::Spliced { .. }) => "spliced".to_owned(),
        Some(other) => other.cause().unwrap().to_string(),
    }
}

pub(crate) async fn words(stage: &Stage, trial: &TrialOpened) -> Vec<String> {
    stage.calls(trial).await.iter().map(word).collect()
}

/// Holds a conversation of `turns` turns. The agent sends back the answers that it reads.
pub(crate) async fn converse(stage: &Stage, trial: &TrialOpened, turns: usize, stream: bool) {
    let mut messages = vec![user("Hi")];
    for _ in 0..turns {
        let (status, content) = ask(stage, trial, &messages, stream).await;
        assert_eq!((status, content.as_str()), (StatusCode::OK, "Hello there"));
        messages.extend([assistant(&content), user("and there?")]);
    }
}
