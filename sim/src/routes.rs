//! Routes requests to their handlers, and sends the answers.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, SERVER};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::chat::Chat;
use super::errors::RequestError;
use super::fields::{Fields, parse};
use super::metrics::metrics;
use super::request::{ChatRequest, in_vocabulary, served};
use super::server::{Cut, Server};
use super::stream::ChatStream;
use super::template::render;
use super::tokens::{decode, encode, printable};

/// The vLLM version whose answers the simulator imitates: `GET /version`.
const VLLM_VERSION: &str = "0.32.0";

/// The maximum size of a request body, in bytes.
const MAX_BODY: usize = 64 << 20;

/// The body of an answer: a document, or events.
type Body = Either<Full<Bytes>, ChatStream>;

/// Answers one request. An error cuts the connection.
pub(super) async fn answer(server: Arc<Server>, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
    let (head, body) = request.into_parts();
    let mut response = match route(&server, &head, body).await {
        Ok(response) => response,
        Err(NoAnswer::Refused(refusal)) => refusal.into_response().map(Either::Left),
        Err(NoAnswer::Cut) => return Err(Cut),
    };
    response.headers_mut().insert(SERVER, HeaderValue::from_static("rolltap-sim"));
    Ok(response)
}

/// The reason why a request gets no answer.
enum NoAnswer {
    Refused(RequestError),
    Cut,
}

impl From<RequestError> for NoAnswer {
    fn from(refusal: RequestError) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Cut> for NoAnswer {
    fn from(_: Cut) -> Self {
        Self::Cut
    }
}

async fn route(server: &Arc<Server>, head: &Parts, body: Incoming) -> Result<Response<Body>, NoAnswer> {
    let weights = server.switches.weights();
    let method = match head.uri.path() {
        "/weight_info" if weights.is_some() => Method::GET,
        "/v1/chat/completions" | "/tokenize" | "/detokenize" => Method::POST,
        "/v1/models" | "/health" | "/ping" | "/version" | "/metrics" => Method::GET,
        _ => return Err(RequestError::routing(StatusCode::NOT_FOUND).into()),
    };
    // vLLM answers `/ping` for both methods.
    if head.method != method && !(head.uri.path() == "/ping" && head.method == Method::POST) {
        let mut response = RequestError::routing(StatusCode::METHOD_NOT_ALLOWED).into_response();
        let allowed = if method == Method::GET { "GET" } else { "POST" };
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        return Ok(response.map(Either::Left));
    }
    match head.uri.path() {
        "/v1/chat/completions" => chat(server, &head.headers, body).await,
        "/tokenize" => Ok(document(&tokenize(server, &read(&head.headers, body).await?)?)),
        "/detokenize" => Ok(document(&detokenize(server, &read(&head.headers, body).await?)?)),
        "/v1/models" => Ok(document(&models(server))),
        "/weight_info" => Ok(document(&json!({"weight_version": weights}))),
        "/health" if server.switches.is_ill() => Ok(empty(StatusCode::SERVICE_UNAVAILABLE)),
        "/version" => Ok(document(&json!({"version": VLLM_VERSION}))),
        "/metrics" => Ok(whole("text/plain; version=1.0.0; charset=utf-8", metrics(server).into())),
        _ => Ok(empty(StatusCode::OK)),
    }
}

async fn chat(server: &Arc<Server>, headers: &HeaderMap, body: Incoming) -> Result<Response<Body>, NoAnswer> {
    if server.switches.is_refusing() {
        return Err(RequestError::scripted(StatusCode::SERVICE_UNAVAILABLE, "not now").into());
    }
    let map = parse(&read(headers, body).await?)?;
    let request = ChatRequest::read(&Fields::of_body(&map), headers, &server.settings)?;
    // Free the body: the answer may take long.
    drop(map);
    let (number, running) = server.begin(request.prompt.len());
    let chat = match Chat::new(request, server, number) {
        Ok(chat) => chat,
        Err(refused) => {
            tokio::time::sleep(refused.delay).await;
            running.finish();
            return Err(RequestError::scripted(refused.status, &refused.message).into());
        }
    };
    if chat.shape.stream {
        let mut response = Response::new(Either::Right(ChatStream::new(chat, Arc::clone(server), running)));
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        return Ok(response);
    }
    let body = chat.complete(Arc::clone(server), running).await?;
    Ok(whole("application/json", body))
}

/// Reads the bytes of a JSON body.
async fn read(headers: &HeaderMap, body: Incoming) -> Result<Bytes, NoAnswer> {
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    if kind.is_some_and(|kind| kind != "application/json") {
        return Err(RequestError::media_type().into());
    }
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body is larger than {MAX_BODY} bytes");
            Err(RequestError::scripted(StatusCode::PAYLOAD_TOO_LARGE, &message).into())
        }
        // The caller disconnected in the middle of its body.
        Err(_) => Err(NoAnswer::Cut),
    }
}

fn tokenize(server: &Server, body: &[u8]) -> Result<Value, RequestError> {
    let map = parse(body)?;
    let body = Fields::of_body(&map);
    served(&body, &server.settings)?;
    let tokens = match body.text("prompt")? {
        Some(prompt) => encode(&prompt),
        None => render(&body)?.tokens(),
    };
    let strings = body.boolean("return_token_strs")?.unwrap_or(false);
    let strings = strings.then(|| tokens.iter().copied().map(printable).collect::<Vec<_>>());
    let max_model_len = server.settings.max_model_len;
    Ok(
        json!({"count": tokens.len(), "max_model_len": max_model_len, "tokens": tokens, "token_strs": strings}),
    )
}

fn detokenize(server: &Server, body: &[u8]) -> Result<Value, RequestError> {
    let map = parse(body)?;
    let body = Fields::of_body(&map);
    served(&body, &server.settings)?;
    let tokens = in_vocabulary(body.ids("tokens")?.ok_or_else(|| body.missing("tokens"))?)?;
    Ok(json!({"prompt": decode(&tokens)}))
}

fn models(server: &Server) -> Value {
    let model = &server.settings.model;
    let permission = json!({
        "id": format!("modelperm-{:016x}", server.settings.seed), "object": "model_permission", "created": server.started,
        "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true, "allow_search_indices": false,
        "allow_view": true, "allow_fine_tuning": false, "organization": "*", "group": null, "is_blocking": false,
    });
    json!({"object": "list", "data": [{
        "id": model, "object": "model", "created": server.started, "owned_by": "vllm", "root": model, "parent": null,
        "max_model_len": server.settings.max_model_len, "permission": [permission],
    }]})
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = status;
    response
}

fn document(value: &Value) -> Response<Body> {
    whole("application/json", value.to_string().into())
}

fn whole(kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
