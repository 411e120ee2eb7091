//! The client of the vLLM that recomputes logprobs.

use std::time::Duration;

use reqwest::{RequestBuilder, StatusCode, Url};
use rolltap_agent::{ClientError, ClientTimeouts, side_client_for};
use rolltap_proxy::Address;
use rolltap_rollout::check::recomputation::{AnswerError, prompt_logprobs};
use rolltap_rollout::served_models::ServedModels;
use serde::Deserialize;
use serde_json::json;

use super::plan::ServerFacts;
use crate::common::plain::plain;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time without a byte of the answer. A paused vLLM holds requests, and a long queue takes its time.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
/// The waits before the retries of one request. vLLM may be overloaded or restarting.
const WAITS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// The number of characters of an error's body that a message contains.
const LONGEST_MESSAGE: usize = 300;

/// Why the server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The HTTP client could not be made.
    #[error("no HTTP client")]
    Client(#[from] ClientError),
    /// The address is no URL.
    #[error("{0} is no URL")]
    InvalidUrl(String),
    /// There was no complete HTTP answer.
    #[error("{request}: no answer; is vLLM running at this address?")]
    Unreachable {
        /// Method and URL.
        request: String,
        /// The connection's error.
        #[source]
        source: reqwest::Error,
    },
    /// The server answered with an error status.
    #[error("{request}: answered {status}: {message}")]
    Status {
        /// Method and URL.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The answer is no list of models.
    #[error("{request}: the answer is no list of models")]
    Unreadable {
        /// Method and URL.
        request: String,
        /// The error of the JSON decoder.
        #[source]
        source: serde_json::Error,
    },
    /// The answer does not have the logprobs of the prompt.
    #[error("{request}")]
    Answer {
        /// Method and URL.
        request: String,
        /// The difference from the expected answer.
        #[source]
        source: AnswerError,
    },
}

impl ServerError {
    /// Whether the same request may succeed later.
    fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => !source.is_builder(),
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Client(_) | Self::InvalidUrl(_) | Self::Unreadable { .. } | Self::Answer { .. } => false,
        }
    }
}

/// The answer to a prompt.
#[derive(Debug, PartialEq)]
pub(super) enum Answered {
    /// The logprobs of all tokens after the first.
    Logprobs(Vec<f64>),
    /// The server refuses this prompt, for example because an id is not in its vocabulary. Has the server's message.
    Refused(String),
}

/// The answer of vLLM's `GET /weight_info`.
#[derive(Deserialize)]
struct WeightInfo {
    weight_version: String,
}

/// The error of vLLM and of OpenAI's API.
#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorMessage,
}

#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
}

/// A client of one vLLM.
#[derive(Debug)]
pub(super) struct Server {
    http: reqwest::Client,
    /// Without `/v1`.
    url: String,
    api_key: Option<String>,
    waits: Vec<Duration>,
}

impl Server {
    pub(super) fn new(address: &Address, api_key: Option<String>) -> Result<Self, ServerError> {
        let url = address.to_string();
        let parsed = Url::parse(&url).map_err(|_| ServerError::InvalidUrl(url.clone()))?;
        let http =
            side_client_for(&parsed, ClientTimeouts { connect: CONNECT_TIMEOUT, read: READ_TIMEOUT }, None)?;
        Ok(Self { http, url, api_key, waits: WAITS.to_vec() })
    }

    /// Returns the same client with other waits before retries.
    #[cfg(test)]
    pub(super) fn waiting(self, waits: Vec<Duration>) -> Self {
        Self { waits, ..self }
    }

    /// Returns the server's models and the name of its weights. Does not retry: an error at the first request usually
    /// means a wrong address.
    pub(super) async fn facts(&self) -> Result<ServerFacts, ServerError> {
        let (request, name) = self.get("/v1/models");
        let body = fetch(request, &name).await?;
        let served =
            ServedModels::parse(&body).map_err(|source| ServerError::Unreadable { request: name, source })?;
        Ok(ServerFacts { url: self.url.clone(), models: served.models, weights: self.weights().await? })
    }

    /// Returns the name of the server's weights. `None` if the server has no `/weight_info`, which needs
    /// `VLLM_SERVER_DEV_MODE=1`.
    pub(super) async fn weights(&self) -> Result<Option<String>, ServerError> {
        let (request, name) = self.get("/weight_info");
        match fetch(request, &name).await {
            // A server before vLLM may answer any path.
            Ok(body) => Ok(serde_json::from_slice::<WeightInfo>(&body).ok().map(|info| info.weight_version)),
            Err(ServerError::Status { status: 400..=499, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the logprobs of a prompt.
    pub(super) async fn logprobs(&self, model: &str, token_ids: &[i32]) -> Result<Answered, ServerError> {
        // vLLM samples at least one token after a prompt. Of `prompt_logprobs`, 0 gives the logprobs of the prompt's
        // tokens alone. The temperature has no effect on them.
        let asked = json!({"model": model, "prompt": token_ids, "max_tokens": 1, "prompt_logprobs": 0,
            "temperature": 1.0, "stream": false});
        let url = format!("{}/v1/completions", self.url);
        let name = format!("POST {url}");
        let mut waits = self.waits.iter();
        let answer = loop {
            let answer = fetch(self.authorized(self.http.post(&url).json(&asked)), &name).await;
            match (answer, waits.next()) {
                (Err(error), Some(wait)) if error.is_passing() => tokio::time::sleep(*wait).await,
                (answer, _) => break answer,
            }
        };
        match answer {
            Ok(body) => match prompt_logprobs(&body, token_ids) {
                Ok(logprobs) => Ok(Answered::Logprobs(logprobs)),
                Err(source) => Err(ServerError::Answer { request: name, source }),
            },
            Err(ServerError::Status { status: 400 | 413 | 422, message, .. }) => {
                Ok(Answered::Refused(message))
            }
            Err(error) => Err(error),
        }
    }

    fn get(&self, path: &str) -> (RequestBuilder, String) {
        let url = format!("{}{path}", self.url);
        (self.authorized(self.http.get(&url)), format!("GET {url}"))
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.api_key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }
}

/// Returns the body of a successful answer.
async fn fetch(request: RequestBuilder, name: &str) -> Result<Vec<u8>, ServerError> {
    let unreachable = |source| ServerError::Unreachable { request: name.to_owned(), source };
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let body = response.bytes().await.map_err(unreachable)?;
    if status == StatusCode::OK {
        return Ok(body.into());
    }
    Err(ServerError::Status { request: name.to_owned(), status: status.as_u16(), message: message_of(&body) })
}

/// Returns the message of an error's body, on one line.
fn message_of(body: &[u8]) -> String {
    let message = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { error }) => error.message,
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let words = plain(&message).split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(LONGEST_MESSAGE).collect()
}
