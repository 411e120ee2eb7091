//! A client of OpenAI-compatible chat completions without streaming: one request, one whole answer.

mod context_length;
mod error;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode, Url};
use serde::{Deserialize, Serialize};

pub use self::error::ChatError;
use self::error::{excerpt, failed_request, refused};
use crate::http_client::{ClientTimeouts, client_for};
use crate::settings::AgentSettings;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The agent: task, terminal output, remarks.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The author of the message.
    pub role: Role,
    /// The text. The model's text is unchanged.
    pub content: String,
}

/// A borrowed message of a conversation, for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Said<'a> {
    pub(crate) role: Role,
    pub(crate) content: &'a str,
}

/// The model's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) content: String,
    /// The reasoning, if the server reports it separately.
    pub(crate) reasoning: Option<String>,
    /// Whether the server's token limit truncated the answer (`finish_reason: "length"`).
    pub(crate) cut_off: bool,
    /// The model's name in the server's answer.
    pub(crate) model: Option<String>,
    /// `None` if the server does not count.
    pub(crate) usage: Option<Usage>,
}

/// The tokens of one call, as counted by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    /// The prompt tokens from the server's cache.
    pub(crate) cached_tokens: u64,
}

/// A client of one model with fixed settings.
pub(crate) struct ChatClient {
    http: reqwest::Client,
    url: Url,
    settings: AgentSettings,
    first_wait: Duration,
    spent: Mutex<Usage>,
}

#[derive(Serialize)]
struct ChatRequest<'a> {
    model: &'a str,
    messages: &'a [Said<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct ChatResponse {
    choices: Vec<Choice>,
    model: Option<String>,
    usage: Option<UsageObject>,
}

#[derive(Deserialize)]
struct Choice {
    message: ReplyMessage,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ReplyMessage {
    content: Option<String>,
    /// vLLM's current name of the field. The alias is its earlier name.
    #[serde(alias = "reasoning_content")]
    reasoning: Option<String>,
}

#[derive(Deserialize)]
struct UsageObject {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<PromptTokens>,
}

#[derive(Deserialize)]
struct PromptTokens {
    cached_tokens: Option<u64>,
}

/// The longest wait that a server's `Retry-After` can cause.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The maximal size of an answer in bytes, far above any real answer.
const LARGEST_ANSWER: usize = 64 << 20;

impl ChatClient {
    pub(crate) fn new(settings: AgentSettings) -> Result<Self, ChatError> {
        let base_url = settings.base_url.trim_end_matches('/');
        let bad_url =
            |cause: &str| ChatError::BadUrl { url: settings.base_url.clone(), cause: cause.to_owned() };
        let url = Url::parse(&settings.base_url)
            .ok()
            .filter(|base| ["http", "https"].contains(&base.scheme()))
            .and_then(|_| Url::parse(&format!("{base_url}/chat/completions")).ok())
            .ok_or_else(|| bad_url("write it as http://HOST:PORT/v1"))?;
        let timeouts = ClientTimeouts {
            // A connection needs far less time than an answer, so a dead server is found sooner.
            connect: settings.call_timeout.min(Duration::from_secs(10)),
            read: settings.call_timeout,
        };
        let http = client_for(&url, timeouts).map_err(|error| bad_url(&error.to_string()))?;
        Ok(Self { http, url, settings, first_wait: Duration::from_millis(500), spent: Mutex::default() })
    }

    /// Requests the next message. Retries connection errors, 429 and 5xx, with increasing waits.
    pub(crate) async fn complete(&self, messages: &[Said<'_>]) -> Result<Reply, ChatError> {
        let mut retries_left = self.settings.retries;
        let mut wait = self.first_wait;
        loop {
            let failure = match self.attempt(messages).await {
                Ok(reply) => {
                    self.count(reply.usage.unwrap_or_default());
                    return Ok(reply);
                }
                Err(failure) => failure,
            };
            let Some(asked) = failure.retry.filter(|_| retries_left > 0) else {
                return Err(failure.error);
            };
            // The server's request is a minimum. The backoff applies if it is longer.
            let pause = asked.min(LONGEST_RETRY_AFTER).max(jittered(wait));
            tracing::info!(error = %failure.error, pause_ms = pause.as_millis(), "asking the model again");
            tokio::time::sleep(pause).await;
            retries_left -= 1;
            wait *= 2;
        }
    }

    pub(crate) fn settings(&self) -> &AgentSettings {
        &self.settings
    }

    /// Returns the tokens of all calls so far, as counted by the server.
    pub(crate) fn spent(&self) -> Usage {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, usage: Usage) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.prompt_tokens += usage.prompt_tokens;
        spent.completion_tokens += usage.completion_tokens;
        spent.cached_tokens += usage.cached_tokens;
    }

    async fn attempt(&self, messages: &[Said<'_>]) -> Result<Reply, Failure> {
        let settings = &self.settings;
        let request = ChatRequest {
            model: &settings.model,
            messages,
            temperature: settings.temperature,
            max_tokens: settings.max_tokens,
        };
        let sent =
            self.http.post(self.url.clone()).bearer_auth(&settings.api_key).json(&request).send().await;
        let response = sent.map_err(|error| self.failed(&error))?;
        let status = response.status();
        let asked = retry_after(&response);
        // The body of an error is read too, because it has the server's message.
        let body = self.read(response).await?;
        if status.is_success() {
            return self.reply(&body).map_err(Failure::fatal);
        }
        let retry = (status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()).then_some(asked);
        Err(Failure { error: refused(self.url.as_str(), status, &body), retry })
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failed(&error))? {
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST_ANSWER {
                return Err(Failure::fatal(self.malformed(&body, "it is larger than 64 MiB")));
            }
        }
        Ok(body)
    }

    fn reply(&self, body: &[u8]) -> Result<Reply, ChatError> {
        let response: ChatResponse =
            serde_json::from_slice(body).map_err(|error| self.malformed(body, &error.to_string()))?;
        let choice =
            response.choices.into_iter().next().ok_or_else(|| self.malformed(body, "it has no choices"))?;
        let usage = response.usage.map(|usage| Usage {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.prompt_tokens_details.and_then(|of| of.cached_tokens).unwrap_or(0),
        });
        Ok(Reply {
            content: choice.message.content.unwrap_or_default(),
            // Some servers send an empty text instead of no reasoning.
            reasoning: choice.message.reasoning.filter(|reasoning| !reasoning.is_empty()),
            cut_off: choice.finish_reason.as_deref() == Some("length"),
            model: response.model,
            usage,
        })
    }

    fn failed(&self, error: &reqwest::Error) -> Failure {
        let error = failed_request(self.url.as_str(), self.settings.call_timeout, error);
        // A timeout is not retried: the server may still be computing the answer.
        let retry = matches!(error, ChatError::Unreachable { .. }).then_some(Duration::ZERO);
        Failure { error, retry }
    }

    fn malformed(&self, body: &[u8], cause: &str) -> ChatError {
        ChatError::Malformed { url: self.url.to_string(), cause: cause.to_owned(), body: excerpt(body) }
    }
}

/// A failed attempt. `retry` is the minimal wait before the next one, or `None` if a retry has no use.
struct Failure {
    error: ChatError,
    retry: Option<Duration>,
}

impl Failure {
    fn fatal(error: ChatError) -> Self {
        Self { error, retry: None }
    }
}

/// Returns the wait in seconds that the server requests. Model servers do not use the form with a date.
fn retry_after(response: &Response) -> Duration {
    let seconds =
        response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// Returns `wait` plus up to 25 %, so that trials that failed together do not retry together.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 256;
    wait + wait.mul_f64(random as f64 / 1024.0)
}
