//! A plain client of OpenAI-compatible chat completions: one request, one whole answer.

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
use crate::settings::AgentSettings;

/// Who wrote a message.
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
    /// Who wrote it.
    pub role: Role,
    /// Its text; that of the model exactly as it was received.
    pub content: String,
}

/// One message of a conversation, as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Said<'a> {
    pub(crate) role: Role,
    pub(crate) content: &'a str,
}

/// What the model answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) content: String,
    /// What it thought, where the server tells that apart.
    pub(crate) reasoning: Option<String>,
    /// The server cut the answer off at its token limit (`finish_reason: "length"`).
    pub(crate) cut_off: bool,
    /// The model's name, as the server gives it.
    pub(crate) model: Option<String>,
    /// None where the server does not count.
    pub(crate) usage: Option<Usage>,
}

/// Tokens of one call, as the server counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    /// Those of the prompt that it had computed before.
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
    /// vLLM's name for it, and the one that it had before.
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

/// Longest wait that a server's `Retry-After` can ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Most bytes of an answer; far above any real one.
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
        let http = reqwest::Client::builder()
            // The base URL is the proxy that records the trial; going around it loses tokens.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(settings.call_timeout.min(Duration::from_secs(10)))
            .read_timeout(settings.call_timeout)
            .build()
            .map_err(|error| bad_url(&error.to_string()))?;
        Ok(Self { http, url, settings, first_wait: Duration::from_millis(500), spent: Mutex::default() })
    }

    /// Asks for the next message. Connection errors, 429 and 5xx are tried again, with growing waits between.
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

    /// Tokens of all calls until now, as far as the server counts them.
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
            reasoning: choice.message.reasoning.filter(|reasoning| !reasoning.is_empty()),
            cut_off: choice.finish_reason.as_deref() == Some("length"),
            model: response.model,
            usage,
        })
    }

    fn failed(&self, error: &reqwest::Error) -> Failure {
        let error = failed_request(self.url.as_str(), self.settings.call_timeout, error);
        let retry = matches!(error, ChatError::Unreachable { .. }).then_some(Duration::ZERO);
        Failure { error, retry }
    }

    fn malformed(&self, body: &[u8], cause: &str) -> ChatError {
        ChatError::Malformed { url: self.url.to_string(), cause: cause.to_owned(), body: excerpt(body) }
    }
}

/// One attempt that failed, and how long to wait at least before the next one, if another makes sense.
struct Failure {
    error: ChatError,
    retry: Option<Duration>,
}

impl Failure {
    fn fatal(error: ChatError) -> Self {
        Self { error, retry: None }
    }
}

/// The wait in seconds that the server asks for; the form with a date is not used by model servers.
fn retry_after(response: &Response) -> Duration {
    let seconds =
        response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// `wait` and up to a quarter more, so that trials that failed together do not come back together.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 256;
    wait + wait.mul_f64(random as f64 / 1024.0)
}
