//! The scripted model: it gives every client the same answers, in the order of the script.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::script::{Answer, Script, types};

/// The model name in requests and answers.
pub(super) const NAME: &str = "scripted";

/// A server that plays scripts to one agent. The instruction in the messages of a call names its script.
#[derive(Clone)]
pub(super) struct Model {
    scripts: Arc<Vec<Script>>,
    /// The number of calls for each script, with rejected calls, but without calls that only waited for a program.
    calls: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Model {
    /// Starts the server, which ends with the test's runtime.
    pub(super) async fn start(scripts: Vec<Script>) -> (Self, SocketAddr) {
        let model = Self { scripts: Arc::new(scripts), calls: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(model.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (model, address)
    }

    /// Returns the number of its calls for a script.
    pub(super) fn calls(&self, script: &str) -> usize {
        self.calls.lock().unwrap().get(script).copied().unwrap_or_default()
    }

    fn next(&self, messages: &Value) -> Option<Answer> {
        let all = messages.to_string();
        let script = self.scripts.iter().find(|script| all.contains(&script.instruction()))?;
        let mut calls = self.calls.lock().unwrap();
        let calls = calls.entry(script.name).or_default();
        let answer = script.answers.get(*calls).or(script.answers.last())?;
        let told = messages.as_array()?.last()?["content"].as_str()?;
        match answer {
            Answer::Once(shown, _) if !told.contains(shown) => return Some(types(&[WAIT])),
            _ => *calls += 1,
        }
        Some(answer.clone())
    }
}

/// A command that only waits.
pub(super) const WAIT: (&str, f64) = ("", 0.25);

async fn answer(State(model): State<Model>, uri: Uri, body: Bytes) -> Response {
    if uri.path().ends_with("/models") {
        return as_json(
            StatusCode::OK,
            &json!({"object": "list", "data": [{"id": NAME, "object": "model"}]}),
        );
    }
    let answer =
        serde_json::from_slice(&body).ok().and_then(|request: Value| model.next(&request["messages"]));
    match answer {
        Some(Answer::Replies(text) | Answer::Once(_, text)) => {
            as_json(StatusCode::OK, &completion(&text, "stop", body.len()))
        }
        Some(Answer::IsCutOff(text)) => as_json(StatusCode::OK, &completion(&text, "length", body.len())),
        Some(Answer::Refuses(status, message)) => {
            let error = json!({"message": message, "type": "Error", "param": null, "code": status});
            as_json(StatusCode::from_u16(status).unwrap(), &json!({"error": error}))
        }
        None => as_json(
            StatusCode::NOT_FOUND,
            &json!({"error": {"message": format!("{uri}: no script is meant")}}),
        ),
    }
}

fn completion(text: &str, finish_reason: &str, request_bytes: usize) -> Value {
    // A real tokenizer would find a similar number.
    let (prompt, sampled) = (request_bytes / 4, text.len() / 4);
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": NAME,
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason,
        }],
        "usage": {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled},
    })
}

fn as_json(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
