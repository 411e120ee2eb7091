//! A server between rolltap and vLLM that records vLLM's answers, byte for byte and independently of rolltap's readers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::Response;
use reqwest::Client;
use serde_json::Value;

use crate::harness::vllm;

/// Whole chat answers of vLLM, in the order of their arrival.
#[derive(Clone)]
pub(crate) struct Witness {
    answers: Arc<Mutex<Vec<Value>>>,
    http: Client,
    /// Whether vLLM seems to run on another machine, where its model's directory does not exist here.
    is_elsewhere: bool,
}

impl Witness {
    /// Starts the server, which ends with the test's runtime.
    pub(crate) async fn start() -> (Self, SocketAddr) {
        Self::new(false).listen().await
    }

    /// Starts the same server, with a vLLM that seems to run on another machine.
    pub(crate) async fn start_elsewhere() -> (Self, SocketAddr) {
        Self::new(true).listen().await
    }

    fn new(is_elsewhere: bool) -> Self {
        Self { answers: Arc::default(), http: rolltap_testing::http_client(), is_elsewhere }
    }

    async fn listen(self) -> (Self, SocketAddr) {
        let witness = self;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(forward).with_state(witness.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (witness, address)
    }

    /// Returns vLLM's answers so far.
    pub(crate) fn answers(&self) -> Vec<Value> {
        self.answers.lock().unwrap().clone()
    }
}

async fn forward(State(witness): State<Witness>, method: Method, uri: Uri, body: Bytes) -> Response {
    let url = format!("{}{uri}", vllm());
    let request =
        witness.http.request(method, url).header(header::CONTENT_TYPE, "application/json").body(body);
    let answer = request.send().await.unwrap();
    let status: StatusCode = answer.status();
    let mut body = answer.bytes().await.unwrap();
    if uri.path() == "/v1/models" && witness.is_elsewhere {
        body = with_another_directory(&body).into();
    }
    if uri.path() == "/v1/chat/completions" && status.is_success() {
        witness.answers.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    }
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .unwrap()
}

fn with_another_directory(models: &[u8]) -> String {
    let mut models: Value = serde_json::from_slice(models).unwrap();
    for model in models["data"].as_array_mut().unwrap() {
        model["root"] = "/elsewhere/model".into();
    }
    models.to_string()
}
