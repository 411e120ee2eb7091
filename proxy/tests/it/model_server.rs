//! A server of the small model in `tests/fixtures/render`. It renders the template of that model, and accepts prompts
//! as ids as vLLM does (or does not). It samples the text that a test sets, letter by letter, which no tokenizer would
//! produce.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokenizers::Tokenizer;
use tokio::net::TcpListener;

/// The fixture's `<|im_end|>`.
const END: u32 = 342;

/// How the server treats prompts that are given as ids.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ids {
    Taken,
    /// The server also accepts ids in a field of the request itself, which its description lists.
    InField,
    Ignored,
    Refused,
}

/// A server that runs until the test ends.
pub(crate) struct ModelServer {
    pub(crate) url: String,
    inner: Arc<Inner>,
}

struct Inner {
    tokenizer: Tokenizer,
    ids: Ids,
    /// The longest prompt, in tokens.
    room: usize,
    /// The sampled text, and the content that the answer shows.
    says: Mutex<(String, String)>,
    /// Whether `/tokenize` and `/detokenize` answer.
    tokenises: AtomicBool,
    /// The number of requests for tokens or their text.
    asked: AtomicUsize,
    heard: Mutex<Vec<Value>>,
}

/// Returns the model's directory.
pub(crate) fn model_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/render")
}

impl ModelServer {
    pub(crate) async fn start(ids: Ids, room: usize) -> Self {
        let tokenizer = Tokenizer::from_file(model_dir().join("tokenizer.json")).unwrap();
        let says = Mutex::new(("Hello there".to_owned(), "Hello there".to_owned()));
        let (tokenises, asked) = (AtomicBool::new(true), AtomicUsize::new(0));
        let heard = Mutex::default();
        let inner = Arc::new(Inner { tokenizer, ids, room, says, tokenises, asked, heard });
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/tokenize", post(tokenize))
            .route("/detokenize", post(detokenize))
            .route("/openapi.json", get(description))
            .route("/health", get(async || ""))
            .route(
                "/v1/models",
                get(async || json!({"data": [{"id": "sim", "root": "/nowhere"}]}).to_string()),
            )
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&inner));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    /// Sets the sampled text of the following answers, and the `content` that they show.
    pub(crate) fn set_answer(&self, sampled: &str, content: &str) {
        *self.inner.says.lock().unwrap() = (sampled.to_owned(), content.to_owned());
    }

    /// Turns `/tokenize` and `/detokenize` off.
    pub(crate) fn does_not_tokenise(&self) {
        self.inner.tokenises.store(false, Ordering::Relaxed);
    }

    /// Returns the number of requests for tokens or their text.
    pub(crate) fn asked(&self) -> usize {
        self.inner.asked.load(Ordering::Relaxed)
    }

    /// Returns the chat requests so far.
    pub(crate) fn heard(&self) -> Vec<Value> {
        self.inner.heard.lock().unwrap().clone()
    }

    /// Returns the ids in each request, or `None` for a request without ids.
    pub(crate) fn given(&self) -> Vec<Option<Vec<u32>>> {
        self.heard().iter().map(given).collect()
    }

    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        self.inner.tokenizer.decode(ids, false).unwrap()
    }
}

fn given(request: &Value) -> Option<Vec<u32>> {
    let params = || request.get("kv_transfer_params")?.get("prompt_token_ids");
    let ids = request.get("prompt_token_ids").or_else(params)?.as_array()?;
    Some(ids.iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect())
}

async fn chat(State(server): State<Arc<Inner>>, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else { return refusal("no JSON") };
    server.heard.lock().unwrap().push(request.clone());
    let Some(text) = rendered(&request["messages"], true) else { return refusal("these are no messages") };
    let prompt = match (given(&request), server.ids) {
        (Some(_), Ids::Refused) => return refusal("no ids, please"),
        (Some(ids), Ids::Taken | Ids::InField) if ids.len() > server.room => {
            let (length, room) = (ids.len(), server.room);
            return refusal(&format!(
                "Input length ({length}) exceeds model's maximum context length ({room})."
            ));
        }
        (Some(ids), Ids::Taken | Ids::InField) => ids,
        (Some(_), Ids::Ignored) | (None, _) => server.encode(&text),
    };
    if prompt.len() > server.room {
        let (length, room) = (prompt.len(), server.room);
        return refusal(&format!(
            "This model's maximum context length is {room} tokens. However, your prompt contains {length} input tokens. Please \
             reduce the length of the input prompt."
        ));
    }
    let (sampled, content) = server.says.lock().unwrap().clone();
    let mut ids: Vec<u32> =
        sampled.chars().flat_map(|letter| server.encode(letter.encode_utf8(&mut [0; 4]))).collect();
    ids.push(END);
    match request["stream"] == json!(true) {
        true => streamed(&prompt, &ids, &content),
        false => whole(&prompt, &ids, &content),
    }
}

async fn description(State(server): State<Arc<Inner>>) -> String {
    let key = if server.ids == Ids::InField { "prompt_token_ids" } else { "kv_transfer_params" };
    json!({"components": {"schemas": {"ChatCompletionRequest": {"properties": {"messages": {}, key: {}}}}}})
        .to_string()
}

async fn tokenize(State(server): State<Arc<Inner>>, body: Bytes) -> Response {
    server.asked.fetch_add(1, Ordering::Relaxed);
    let request: Value = serde_json::from_slice(&body).unwrap();
    let text = match &request["prompt"] {
        Value::String(text) => Some(text.clone()),
        _ => rendered(&request["messages"], request["add_generation_prompt"] != json!(false)),
    };
    match text {
        Some(_) if !server.tokenises.load(Ordering::Relaxed) => StatusCode::NOT_FOUND.into_response(),
        Some(text) => {
            answer(StatusCode::OK, "application/json", json!({"tokens": server.encode(&text)}).to_string())
        }
        None => refusal("these are no messages"),
    }
}

async fn detokenize(State(server): State<Arc<Inner>>, body: Bytes) -> Response {
    server.asked.fetch_add(1, Ordering::Relaxed);
    let request: Value = serde_json::from_slice(&body).unwrap();
    let ids: Vec<u32> = serde_json::from_value(request["tokens"].clone()).unwrap();
    let text = server.tokenizer.decode(&ids, false).unwrap();
    answer(StatusCode::OK, "application/json", json!({"prompt": text}).to_string())
}

impl Inner {
    fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec()
    }
}

/// Renders the subset of the fixture's template that these tests need.
fn rendered(messages: &Value, add_generation_prompt: bool) -> Option<String> {
    let mut text = String::new();
    for message in messages.as_array().filter(|messages| !messages.is_empty())? {
        let role = message.get("role")?.as_str()?;
        text += &match role {
            "assistant" => {
                format!("<|im_start|>assistant\n{}<|im_end|>\n", text_of(message)?.trim_start_matches('\n'))
            }
            _ => format!("<|im_start|>{role}\n{}<|im_end|>\n", text_of(message)?),
        };
    }
    Some(if add_generation_prompt { text + "<|im_start|>assistant\n" } else { text })
}

fn text_of(message: &Value) -> Option<String> {
    match message.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| part.get("text")?.as_str());
            Some(texts.collect::<Option<Vec<_>>>()?.join("\n"))
        }
        Value::Null => Some(String::new()),
        _ => None,
    }
}

fn logprobs(count: usize) -> Value {
    let token = json!({"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []});
    json!({"content": vec![token; count]})
}

fn whole(prompt: &[u32], ids: &[u32], content: &str) -> Response {
    let message = json!({"role": "assistant", "content": content, "refusal": null, "tool_calls": []});
    let choice = json!({"index": 0, "message": message, "logprobs": logprobs(ids.len()), "finish_reason": "stop",
        "stop_reason": null, "token_ids": ids});
    let total = prompt.len() + ids.len();
    let usage = json!({"prompt_tokens": prompt.len(), "completion_tokens": ids.len(), "total_tokens": total});
    answer(
        StatusCode::OK,
        "application/json",
        json!({"id": "c", "object": "chat.completion", "created": 1, "model": "sim", "choices": [choice],
            "usage": usage, "prompt_token_ids": prompt})
        .to_string(),
    )
}

fn streamed(prompt: &[u32], ids: &[u32], content: &str) -> Response {
    let chunk = |choice: Value| json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "sim", "choices": [choice]});
    let mut first =
        chunk(json!({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}));
    first["prompt_token_ids"] = json!(prompt);
    let mut text = format!("data: {first}\n\n");
    let mut letters = content.chars();
    for (place, id) in ids.iter().enumerate() {
        let is_last = place + 1 == ids.len();
        let letter: String =
            if is_last { letters.by_ref().collect() } else { letters.next().into_iter().collect() };
        let finish = if is_last { json!("stop") } else { Value::Null };
        let choice = json!({"index": 0, "delta": {"content": letter}, "logprobs": logprobs(1),
            "finish_reason": finish, "stop_reason": null, "token_ids": [id]});
        text += &format!("data: {}\n\n", chunk(choice));
    }
    answer(StatusCode::OK, "text/event-stream; charset=utf-8", text + "data: [DONE]\n\n")
}

fn refusal(message: &str) -> Response {
    let error = json!({"message": message, "type": "BadRequestError", "param": null, "code": 400});
    answer(StatusCode::BAD_REQUEST, "application/json", json!({"error": error}).to_string())
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response {
    (status, [("content-type", content_type)], body).into_response()
}
