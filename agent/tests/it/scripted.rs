//! A model whose context can be full, and which distinguishes helper conversations from the work.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rolltap_agent::{AgentSettings, Message};
use serde_json::{Value, json};

/// The purpose of a call, recognised by its last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Work,
    Summary,
    Questions,
    Answers,
    Brief,
}

/// A call that the model received.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) messages: Vec<Message>,
}

impl Call {
    pub(crate) fn last(&self) -> &str {
        &self.messages.last().unwrap().content
    }
}

/// The answer of the model.
pub(crate) enum Reply {
    Words(String),
    CutOff(String),
    TooLong,
}

pub(crate) struct Scripted {
    /// Every call, in the order of arrival.
    pub(crate) calls: Arc<Mutex<Vec<Call>>>,
    pub(crate) settings: AgentSettings,
}

impl Scripted {
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.calls.lock().unwrap().iter().map(|call| call.kind).collect()
    }
}

type Script = dyn Fn(&Call, usize) -> Reply + Send + Sync;

#[derive(Clone)]
struct Shared {
    script: Arc<Script>,
    calls: Arc<Mutex<Vec<Call>>>,
    max_model_len: Option<u64>,
    prompt_tokens: u64,
}

/// Starts a server of this model. `script` gets the call and the number of earlier calls of the same kind. The server
/// reports `prompt_tokens` for each message, and the length of the context if it is given.
pub(crate) async fn scripted(
    max_model_len: Option<u64>,
    prompt_tokens: u64,
    script: impl Fn(&Call, usize) -> Reply + Send + Sync + 'static,
) -> Scripted {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let shared = Shared { script: Arc::new(script), calls: Arc::clone(&calls), max_model_len, prompt_tokens };
    let app = Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/v1/models", get(models))
        .with_state(shared);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    Scripted { calls, settings: AgentSettings::new(base_url, "key", "scripted") }
}

async fn models(State(shared): State<Shared>) -> Json<Value> {
    Json(json!({"data": [{"id": "scripted", "max_model_len": shared.max_model_len}]}))
}

async fn complete(State(shared): State<Shared>, Json(body): Json<Value>) -> Response {
    let messages: Vec<Message> = serde_json::from_value(body["messages"].clone()).unwrap();
    let size = messages.len() as u64;
    let call = Call { kind: kind_of(&messages.last().unwrap().content), messages };
    let before = {
        let mut calls = shared.calls.lock().unwrap();
        let before = calls.iter().filter(|earlier| earlier.kind == call.kind).count();
        calls.push(call.clone());
        before
    };
    let (content, finish) = match (shared.script)(&call, before) {
        Reply::Words(content) => (content, "stop"),
        Reply::CutOff(content) => (content, "length"),
        Reply::TooLong => {
            let error = json!({"error": {"message": "This model's maximum context length is 9 tokens."}});
            return (StatusCode::BAD_REQUEST, Json(error)).into_response();
        }
    };
    let choice = json!({"message": {"role": "assistant", "content": content}, "finish_reason": finish});
    let usage = json!({"prompt_tokens": size * shared.prompt_tokens, "completion_tokens": 1});
    Json(json!({"model": "scripted-1", "choices": [choice], "usage": usage})).into_response()
}

fn kind_of(last: &str) -> Kind {
    let kinds = [
        ("This conversation is about to be handed over", Kind::Summary),
        ("You take over a terminal task that another agent", Kind::Questions),
        ("The agent that takes over has these questions", Kind::Answers),
        ("You take over a terminal task whose conversation", Kind::Brief),
    ];
    kinds.into_iter().find(|(beginning, _)| last.starts_with(beginning)).map_or(Kind::Work, |(_, kind)| kind)
}
