//! The orchestrator's client of the admin plane: what it can do, any other runner can do over the same HTTP.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt, stream};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use rolltap_proxy::api::{ErrorBody, OpenTrial, PutReward, TrialOpened, TrialStatus};
use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::row::RolloutRow;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::Instant;
use tokio_util::io::StreamReader;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two reads, not for the whole answer: a long trial's rollout may take its time.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a proxy that is away, or cannot write, is waited for: it may be one that is being started again.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first wait before a request is made again; each is twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A proxy's admin plane.
#[derive(Clone, Debug)]
pub struct AdminClient {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    patience: Duration,
}

/// Whether a request may be made again where nobody knows what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Twice has the effect of once.
    Idempotent,
    /// Twice may be once too often.
    Once,
}

/// Why a request to the admin plane failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be one of an admin plane.
    #[error("{url:?} is no admin address of a proxy: give http://HOST:PORT as its --admin says")]
    InvalidUrl {
        /// What was given.
        url: String,
    },
    /// No HTTP answer came.
    #[error(
        "{request}: no answer from the proxy's admin plane; is it running, and is this its --admin address?"
    )]
    Unreachable {
        /// Method and URL.
        request: String,
        /// What the connection said.
        #[source]
        source: reqwest::Error,
    },
    /// The admin plane said no.
    #[error("{request}: answered {status}: {message}")]
    Refused {
        /// Method and URL.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The server's own words.
        message: String,
    },
    /// The answer broke off, or is not of this version's form.
    #[error("{request}: the answer cannot be read; do both sides run the same version of rolltap?")]
    Unreadable {
        /// Method and URL.
        request: String,
        /// Where it went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl AdminError {
    /// The proxy does not answer, or answers that it cannot now. Any other trial would fare the same, and what was asked may
    /// be had later.
    pub fn is_of_an_absent_proxy(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => *status == StatusCode::SERVICE_UNAVAILABLE,
            Self::InvalidUrl { .. } | Self::Unreadable { .. } => false,
        }
    }

    /// Whether the proxy has, or may have, done what it was asked.
    pub(crate) fn may_have_had_effect(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => !source.is_connect(),
            Self::Unreadable { .. } => true,
            Self::Refused { .. } | Self::InvalidUrl { .. } => false,
        }
    }

    fn is_worth_another_try(&self, effect: Effect) -> bool {
        self.is_of_an_absent_proxy() && (effect == Effect::Idempotent || !self.may_have_had_effect())
    }
}

impl AdminClient {
    /// A client of the admin plane at `url` (`http://HOST:PORT`), with the token of `--admin-token-file` if it wants one.
    ///
    /// # Errors
    /// [`AdminError::InvalidUrl`]; nothing is sent yet.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, AdminError> {
        let invalid = || AdminError::InvalidUrl { url: url.to_owned() };
        let parsed = reqwest::Url::parse(url).map_err(|_| invalid())?;
        if parsed.scheme() != "http" || parsed.host_str().is_none() {
            return Err(invalid());
        }
        let http = reqwest::Client::builder()
            .no_proxy() // an admin plane is never behind the environment's HTTP proxy
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .build()
            .map_err(|_| invalid())?;
        Ok(Self { http, base: url.trim_end_matches('/').to_owned(), token, patience: PATIENCE })
    }

    /// The same, with other patience for a proxy that is away.
    #[must_use]
    pub fn waiting_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Whether the proxy is there and takes this token. Not waited for: what is wrong at once is most often the address.
    pub async fn greet(&self) -> Result<(), AdminError> {
        let (request, name) = self.request::<()>(Method::GET, "/v1/upstreams", None);
        send(request, &name).await.map(drop)
    }

    /// Opens a trial. Not asked again where a connection broke: the trial might have been opened.
    pub async fn open_trial(&self, trial: &OpenTrial) -> Result<TrialOpened, AdminError> {
        let (response, name) = self.ask(Method::POST, "/v1/trials", Some(trial), Effect::Once).await?;
        read_json(response, name).await
    }

    /// Seals a trial: no further call, stragglers cancelled. Idempotent.
    pub async fn seal(&self, trial: &TrialId) -> Result<TrialStatus, AdminError> {
        self.repeatable::<()>(Method::POST, &format!("/v1/trials/{trial}/seal"), None).await
    }

    /// Joins a trial with its reward. Idempotent for equal rewards.
    pub async fn put_reward(&self, trial: &TrialId, reward: &PutReward) -> Result<TrialStatus, AdminError> {
        self.repeatable(Method::PUT, &format!("/v1/trials/{trial}/reward"), Some(reward)).await
    }

    /// Where a trial stands.
    pub async fn status(&self, trial: &TrialId) -> Result<TrialStatus, AdminError> {
        self.repeatable::<()>(Method::GET, &format!("/v1/trials/{trial}"), None).await
    }

    /// A trial's captured calls, in order.
    pub async fn calls(
        &self,
        trial: &TrialId,
    ) -> Result<impl Stream<Item = Result<Call, AdminError>>, AdminError> {
        self.ndjson(&format!("/v1/trials/{trial}/calls")).await
    }

    /// A sealed trial's branches with its reward, one row each.
    pub async fn rollout(
        &self,
        trial: &TrialId,
    ) -> Result<impl Stream<Item = Result<RolloutRow, AdminError>>, AdminError> {
        self.ndjson(&format!("/v1/trials/{trial}/rollout")).await
    }

    fn request<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> (RequestBuilder, String) {
        let url = format!("{}{path}", self.base);
        let name = format!("{method} {url}");
        let mut request = self.http.request(method, url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        (request, name)
    }

    async fn repeatable<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<TrialStatus, AdminError> {
        let (response, name) = self.ask(method, path, body, Effect::Idempotent).await?;
        read_json(response, name).await
    }

    /// Makes a request, again and again while the proxy is away. Gives back what was asked, too, for errors.
    async fn ask<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
        effect: Effect,
    ) -> Result<(Response, String), AdminError> {
        let patience_ends = Instant::now() + self.patience;
        let mut wait = FIRST_WAIT;
        loop {
            let (request, name) = self.request(method.clone(), path, body);
            match send(request, &name).await {
                Ok(response) => return Ok((response, name)),
                Err(error)
                    if error.is_worth_another_try(effect) && Instant::now() + wait <= patience_ends =>
                {
                    tracing::warn!(request = name, %error, "asking the proxy again");
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn ndjson<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<T, AdminError>> + use<T>, AdminError> {
        let (response, name) = self.ask::<()>(Method::GET, path, None, Effect::Idempotent).await?;
        let body = response.bytes_stream().map_err(std::io::Error::other);
        let lines = BufReader::new(StreamReader::new(Box::pin(body))).lines();
        Ok(stream::try_unfold((lines, name), |(mut lines, name)| async {
            let line = lines.next_line().await.map_err(|error| unreadable(&name, error))?;
            let Some(line) = line else { return Ok(None) };
            let item = serde_json::from_str(&line).map_err(|error| unreadable(&name, error))?;
            Ok(Some((item, (lines, name))))
        }))
    }
}

async fn send(request: RequestBuilder, name: &str) -> Result<Response, AdminError> {
    let response = request.send().await.map_err(|source| AdminError::Unreachable {
        request: name.to_owned(),
        source: source.without_url(),
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    let message = serde_json::from_str::<ErrorBody>(&text).map_or(text, |body| body.error.message);
    Err(AdminError::Refused { request: name.to_owned(), status: status.as_u16(), message })
}

async fn read_json<T: DeserializeOwned>(response: Response, name: String) -> Result<T, AdminError> {
    let body = response.bytes().await.map_err(|error| unreadable(&name, error))?;
    serde_json::from_slice(&body).map_err(|error| unreadable(&name, error))
}

fn unreadable(request: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AdminError {
    AdminError::Unreadable { request: request.to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests;
