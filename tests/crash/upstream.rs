//! A vLLM-shaped upstream that stores its requests and answers. It outlives every proxy of its test.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::rng::Chance;
use super::tokens::{self, ASSISTANT, END, SYSTEM, USER};

/// An answer as it was sampled. The number of its bytes that arrived is unknown, because connections break.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) prompt: Vec<u32>,
    pub(crate) ids: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) text: String,
    finish: &'static str,
    is_chat: bool,
    /// Whether the answer ends only after its release.
    is_held: bool,
    /// The pause before the answer, or between two tokens of a stream.
    pause: Duration,
}

/// The requests of one trial, and their answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) requests: u64,
    pub(crate) answers: BTreeMap<u32, Sent>,
}

pub(crate) struct Upstream {
    pub(crate) url: String,
    inner: Arc<Inner>,
}

struct Inner {
    seed: u64,
    /// The longest pause between two tokens.
    slowest: Duration,
    next: AtomicU32,
    asked: Mutex<HashMap<u32, Asked>>,
    /// Whether held answers may end.
    let_go: watch::Sender<bool>,
    engines: Engines,
    http: reqwest::Client,
}

/// The URL of the engine of each model.
pub(crate) type Engines = BTreeMap<String, String>;

/// A word in a prompt: a stream stops half-way until it is released, and a whole answer does not begin.
pub(crate) const HOLD: &str = "hold";

impl Upstream {
    pub(crate) async fn start(seed: u64, slowest: Duration) -> Self {
        Self::start_with(seed, slowest, Engines::new()).await
    }

    /// Starts an upstream that passes the calls of these models to other engines, as a router does.
    pub(crate) async fn start_with(seed: u64, slowest: Duration, engines: Engines) -> Self {
        let (next, asked, let_go) = (AtomicU32::new(0), Mutex::default(), watch::Sender::new(false));
        let http = rolltap_testing::client_builder().build().unwrap();
        let inner = Arc::new(Inner { seed, slowest, next, asked, let_go, engines, http });
        let models =
            json!({"data": [{"id": "m", "root": "elsewhere", "max_model_len": 100_000}]}).to_string();
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/completions", post(completion))
            .route("/health", get(async || ""))
            .route("/v1/models", get(async move || models.clone()))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&inner));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    /// Returns the requests and answers of a trial so far.
    pub(crate) fn asked(&self, trial: u32) -> Asked {
        self.inner.asked.lock().unwrap().get(&trial).cloned().unwrap_or_default()
    }

    /// Returns the text of an answer.
    pub(crate) fn text(&self, trial: u32, answer: u32) -> Option<String> {
        let asked = self.inner.asked.lock().unwrap();
        Some(asked.get(&trial)?.answers.get(&answer)?.text.clone())
    }

    /// Releases all held answers. No answer is held afterwards.
    pub(crate) fn let_go(&self) {
        self.inner.let_go.send_replace(true);
    }

    /// Sets the number of requests to 0, so that the captures need not hold every request of this trial.
    pub(crate) fn uncount(&self, trial: u32) {
        if let Some(asked) = self.inner.asked.lock().unwrap().get_mut(&trial) {
            asked.requests = 0;
        }
    }

    /// Forgets a trial that no further check needs.
    pub(crate) fn forget(&self, trial: u32) {
        self.inner.asked.lock().unwrap().remove(&trial);
    }
}

async fn chat(State(server): State<Arc<Inner>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    if let Some(engine) = server.engines.get(request["model"].as_str().unwrap_or_default()) {
        return server.pass(engine, body).await;
    }
    let mut prompt = Vec::new();
    for message in request["messages"].as_array().unwrap() {
        prompt.push(match message["role"].as_str().unwrap() {
            "system" | "developer" => SYSTEM,
            "user" => USER,
            _ => ASSISTANT,
        });
        prompt.extend(tokens::ids_of(&content(&message["content"])));
        prompt.push(END);
    }
    prompt.push(ASSISTANT);
    server.answer(prompt, true, request["stream"] == true).await
}

/// Returns the text of a text, or of a list of parts.
fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

async fn completion(State(server): State<Arc<Inner>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    server.answer(tokens::ids_of(request["prompt"].as_str().unwrap()), false, request["stream"] == true).await
}

impl Inner {
    /// Passes a call to an engine, and its answer back.
    async fn pass(&self, engine: &str, body: Bytes) -> Response {
        let request = self.http.post(format!("{engine}/v1/chat/completions"));
        let sent = request.header(header::CONTENT_TYPE, "application/json").body(body).send().await;
        let Ok(answer) = sent else { return StatusCode::BAD_GATEWAY.into_response() };
        let mut passed = Response::builder().status(answer.status());
        if let Some(kind) = answer.headers().get(header::CONTENT_TYPE) {
            passed = passed.header(header::CONTENT_TYPE, kind);
        }
        passed.body(Body::from_stream(answer.bytes_stream())).unwrap()
    }

    async fn answer(&self, prompt: Vec<u32>, is_chat: bool, stream: bool) -> Response {
        let trial = tokens::trial_in(&prompt).unwrap();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let sent = self.sample(number, prompt, is_chat);
        {
            let mut asked = self.asked.lock().unwrap();
            let asked = asked.entry(trial).or_default();
            asked.requests += 1;
            asked.answers.insert(number, sent.clone());
        }
        tokio::time::sleep(sent.pause).await;
        let mut let_go = self.let_go.subscribe();
        if !stream {
            if sent.is_held {
                let _ = let_go.wait_for(|&is_so| is_so).await;
            }
            return ([(header::CONTENT_TYPE, "application/json")], sent.whole(number).to_string())
                .into_response();
        }
        let events = stream::unfold((0, sent, let_go), move |(at, sent, mut let_go)| async move {
            let event = sent.event(number, at)?;
            if sent.is_held && at == sent.ids.len().div_ceil(2) {
                let _ = let_go.wait_for(|&is_so| is_so).await;
            }
            // Like vLLM, the upstream sends the first token right after the prompt's event. Each further token follows
            // a pause.
            if at > 1 {
                tokio::time::sleep(sent.pause).await;
            }
            Some((Ok::<_, Infallible>(event), (at + 1, sent, let_go)))
        });
        ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from_stream(events))
            .into_response()
    }

    fn sample(&self, number: u32, prompt: Vec<u32>, is_chat: bool) -> Sent {
        let mut chance = Chance::of(self.seed, u64::from(number));
        let is_held = tokens::ids_of(HOLD).iter().all(|word| prompt.contains(word));
        let length = chance.among(1..50) as usize;
        let mut ids = vec![tokens::of_answer(number)];
        ids.extend((1..length).map(|_| chance.among(tokens::WORDS) as u32));
        let text = ids.iter().map(|&id| tokens::word(id)).collect::<Vec<_>>().join(" ");
        if is_chat {
            ids.push(END);
        }
        let logprobs = ids.iter().map(|_| (chance.unit().ln() * chance.unit()) as f32).collect();
        let finish = if is_chat { "stop" } else { "length" };
        // Most answers are fast, because few of the slow ones would end before the next kill.
        let share = if chance.per_cent(30) { 1.0 } else { 0.1 };
        let pause = chance.below(self.slowest.mul_f64(share));
        Sent { prompt, ids, logprobs, text, finish, is_chat, is_held, pause }
    }
}

impl Sent {
    fn logprobs(&self, range: std::ops::Range<usize>) -> Value {
        let of = |at: usize| (self.word(at), f64::from(self.logprobs[at]));
        let entries: Vec<_> = range.map(of).collect();
        if self.is_chat {
            let entry = |(token, logprob): &(String, f64)| json!({"token": token, "logprob": logprob, "bytes": null, "top_logprobs": []});
            return json!({"content": entries.iter().map(entry).collect::<Vec<_>>()});
        }
        let (tokens, logprobs): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        json!({"text_offset": vec![0; tokens.len()], "tokens": tokens, "token_logprobs": logprobs, "top_logprobs": null})
    }

    /// Returns the text of a token.
    fn word(&self, at: usize) -> String {
        match (at, self.ids[at]) {
            (_, END) => String::new(),
            (0, id) => tokens::word(id),
            (_, id) => format!(" {}", tokens::word(id)),
        }
    }

    fn whole(&self, number: u32) -> Value {
        let mut choice = json!({"index": 0, "logprobs": self.logprobs(0..self.ids.len()), "finish_reason": self.finish,
            "stop_reason": null, "token_ids": self.ids});
        let mut answer = json!({"id": format!("answer-{number}"), "object": "x", "created": 1, "model": "m",
            "usage": {"prompt_tokens": self.prompt.len(), "completion_tokens": self.ids.len(),
                "total_tokens": self.prompt.len() + self.ids.len()}});
        if self.is_chat {
            choice["message"] = json!({"role": "assistant", "content": self.text});
            answer["prompt_token_ids"] = json!(self.prompt);
        } else {
            choice["text"] = json!(self.text);
            choice["prompt_token_ids"] = json!(self.prompt);
        }
        answer["choices"] = json!([choice]);
        answer
    }

    /// Returns event 0 for the prompt, then one for each token, then `[DONE]`.
    fn event(&self, number: u32, at: usize) -> Option<Bytes> {
        if at == self.ids.len() + 1 {
            return Some(Bytes::from_static(b"data: [DONE]\n\n"));
        }
        let mut answer = json!({"id": format!("answer-{number}"), "object": "x", "created": 1, "model": "m"});
        let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": null});
        if let Some(token) = at.checked_sub(1) {
            let id = self.ids.get(token)?;
            choice["logprobs"] = self.logprobs(token..at);
            choice["token_ids"] = json!([id]);
            choice[if self.is_chat { "delta" } else { "text" }] =
                if self.is_chat { json!({"content": self.word(token)}) } else { json!(self.word(token)) };
            if at == self.ids.len() {
                choice["finish_reason"] = json!(self.finish);
            }
        } else if self.is_chat {
            choice["delta"] = json!({"role": "assistant", "content": ""});
            answer["prompt_token_ids"] = json!(self.prompt);
        } else {
            choice["text"] = json!("");
            choice["prompt_token_ids"] = json!(self.prompt);
        }
        answer["choices"] = json!([choice]);
        Some(format!("data: {answer}\n\n").into())
    }
}
