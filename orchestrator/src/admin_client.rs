//! The orchestrator's client of the admin plane. Any other runner can do the same over HTTP.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt, stream};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use rolltap_agent::{ClientTimeouts, side_client_for};
use rolltap_proxy::api::{
    CancelSubmissions, CapturedAnswer, CloseGroup, ErrorBody, GroupStatus, OpenTrial, PutReward, Submission,
    Submit, TrialOpened, TrialStatus,
};
use rolltap_proxy::traces::{SpanPlace, TRACEPARENT};
use rolltap_proxy::{TlsError, UpstreamTls};
use rolltap_rollout::call::Call;
use rolltap_rollout::ids::{GroupId, SubmissionId, TrialId};
use rolltap_rollout::row::RolloutRow;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::Instant;
use tokio_util::io::StreamReader;

mod greeting;

pub(crate) use greeting::Greeter;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two reads, not the time of the whole answer: the rollout of a long trial may take longer.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How long requests are retried while the proxy is unreachable or cannot write. It may be restarting.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the parts of a cluster wait for a proxy that is away. A proxy that a person must start again may take minutes, and a
/// part that gives up costs each of its trials an attempt.
pub(crate) const CLUSTER_PATIENCE: Duration = Duration::from_secs(300);
/// The wait before the first retry. Each further wait is twice as long, up to `LONGEST_WAIT`.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A client of one proxy's admin plane.
#[derive(Clone, Debug)]
pub struct AdminClient {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    patience: Duration,
    /// The span that requests name. `None` if they name no span.
    span: Option<SpanPlace>,
}

/// Whether a request may be retried if it may already have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Two requests have the effect of one.
    Idempotent,
    /// A second request could have a second effect.
    Once,
}

/// Why a request to the admin plane failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The URL cannot be the address of an admin plane.
    #[error("{url:?} is no admin address of a proxy: give http://HOST:PORT, the address of its --admin")]
    InvalidUrl {
        /// The given URL.
        url: String,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There was no HTTP answer.
    #[error(
        "{request}: no answer from the proxy's admin plane; is it running, and is this its --admin address?"
    )]
    Unreachable {
        /// Method and URL.
        request: String,
        /// The connection's error.
        #[source]
        source: reqwest::Error,
    },
    /// The admin plane answered with an error status.
    #[error("{request}: answered {status}: {message}")]
    Refused {
        /// Method and URL.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The message of the server.
        message: String,
    },
    /// The answer ended early, or does not have the format of this version.
    #[error("{request}: the answer cannot be read; do both sides run the same version of rolltap?")]
    Unreadable {
        /// Method and URL.
        request: String,
        /// The error of the connection or of the JSON decoder.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl AdminError {
    /// Whether the proxy is unreachable or answers 503. Every other trial would fail likewise, and the request may
    /// succeed later.
    pub fn is_of_an_absent_proxy(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => *status == StatusCode::SERVICE_UNAVAILABLE,
            Self::InvalidUrl { .. } | Self::Tls(_) | Self::Unreadable { .. } => false,
        }
    }

    /// Whether the proxy has no trial of this name.
    pub(crate) fn is_of_an_unknown_trial(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// Whether the proxy has, or may have, carried out the request.
    pub(crate) fn may_have_had_effect(&self) -> bool {
        match self {
            // Without a connection the request was never sent. Any other error may follow its execution.
            Self::Unreachable { source, .. } => !source.is_connect(),
            Self::Unreadable { .. } => true,
            Self::Refused { .. } | Self::InvalidUrl { .. } | Self::Tls(_) => false,
        }
    }

    fn is_worth_another_try(&self, effect: Effect) -> bool {
        // A 503 had no effect, so even a request with effect may be sent again.
        self.is_of_an_absent_proxy() && (effect == Effect::Idempotent || !self.may_have_had_effect())
    }
}

impl AdminClient {
    /// Makes a client of the admin plane at `url` (`http://HOST:PORT`), with the token of `--admin-token-file` if the
    /// proxy requires one.
    ///
    /// # Errors
    /// [`AdminError::InvalidUrl`]. No request is sent yet.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, AdminError> {
        Self::with_tls(url, token, &UpstreamTls::default())
    }

    /// Makes a client like [`AdminClient::new`], with these files for an `https` URL.
    ///
    /// # Errors
    /// [`AdminError::InvalidUrl`] and [`AdminError::Tls`]. No request is sent yet.
    pub fn with_tls(url: &str, token: Option<String>, tls: &UpstreamTls) -> Result<Self, AdminError> {
        let invalid = || AdminError::InvalidUrl { url: url.to_owned() };
        let parsed = reqwest::Url::parse(url).map_err(|_| invalid())?;
        if !["http", "https"].contains(&parsed.scheme()) || parsed.host_str().is_none() {
            return Err(invalid());
        }
        let timeouts = ClientTimeouts { connect: CONNECT_TIMEOUT, read: READ_TIMEOUT };
        // Without files, the client reads the authorities of the system only if the URL needs them.
        let needs_files = parsed.scheme() == "https" && *tls != UpstreamTls::default();
        let tls = needs_files.then(|| tls.client_config()).transpose()?;
        let http = side_client_for(&parsed, timeouts, tls).map_err(|_| invalid())?;
        Ok(Self { http, base: url.trim_end_matches('/').to_owned(), token, patience: PATIENCE, span: None })
    }

    /// Returns the same client with another limit for retries while the proxy is unreachable.
    #[must_use]
    pub fn waiting_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Opens a trial. Does not retry after a broken connection if the trial has no idempotency key, since it might already be
    /// open.
    pub async fn open_trial(&self, trial: &OpenTrial) -> Result<TrialOpened, AdminError> {
        self.open_trial_in(trial, None).await
    }

    /// Opens a trial whose spans are below this span.
    pub(crate) async fn open_trial_in(
        &self,
        trial: &OpenTrial,
        span: Option<SpanPlace>,
    ) -> Result<TrialOpened, AdminError> {
        let client = Self { span, ..self.clone() };
        let effect = if trial.idempotency_key.is_some() { Effect::Idempotent } else { Effect::Once };
        let (response, name) = client.ask(Method::POST, "/v1/trials", Some(trial), effect).await?;
        read_json(response, name).await
    }

    /// Seals a trial: cancels its calls in flight and rejects further ones. Idempotent.
    pub async fn seal(&self, trial: &TrialId) -> Result<TrialStatus, AdminError> {
        self.repeatable::<(), _>(Method::POST, &format!("/v1/trials/{trial}/seal"), None).await
    }

    /// Sets the reward of a trial. Idempotent for equal rewards.
    pub async fn put_reward(&self, trial: &TrialId, reward: &PutReward) -> Result<TrialStatus, AdminError> {
        self.repeatable(Method::PUT, &format!("/v1/trials/{trial}/reward"), Some(reward)).await
    }

    /// Submits groups to a service. Retries only with an idempotency key, since the submission might already be accepted.
    pub async fn submit(&self, submit: &Submit) -> Result<Submission, AdminError> {
        let effect = if submit.idempotency_key.is_some() { Effect::Idempotent } else { Effect::Once };
        let (response, name) = self.ask(Method::POST, "/v1/submissions", Some(submit), effect).await?;
        read_json(response, name).await
    }

    /// Returns a submission.
    pub async fn submission(&self, id: &SubmissionId) -> Result<Submission, AdminError> {
        self.repeatable::<(), _>(Method::GET, &format!("/v1/submissions/{id}"), None).await
    }

    /// Returns the submissions after this one, the oldest first: at most `limit`, and with `active` only those that have
    /// not ended.
    pub async fn submissions(
        &self,
        after: Option<&SubmissionId>,
        active: bool,
        limit: usize,
    ) -> Result<Vec<Submission>, AdminError> {
        let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let path = format!("/v1/submissions?active={active}&limit={limit}{after}");
        self.repeatable::<(), _>(Method::GET, &path, None).await
    }

    /// Cancels a submission. Idempotent.
    pub async fn cancel_submission(&self, id: &SubmissionId) -> Result<Submission, AdminError> {
        self.repeatable::<(), _>(Method::POST, &format!("/v1/submissions/{id}/cancel"), None).await
    }

    /// Cancels all submissions of a policy version, and returns those that had not ended. Idempotent.
    pub async fn cancel_submissions(&self, policy_version: i32) -> Result<Vec<Submission>, AdminError> {
        let body = CancelSubmissions { policy_version };
        self.repeatable(Method::POST, "/v1/submissions/cancel", Some(&body)).await
    }

    /// Closes a group. With `drop`, readers of closed groups do not get it. Idempotent. Returns the number of its complete
    /// samples: 0 for a group without any trial, which the proxy does not know.
    pub(crate) async fn close_group(&self, group: &GroupId, drop: bool) -> Result<u64, AdminError> {
        let path = format!("/v1/groups/{}/close", utf8_percent_encode(group.as_str(), NON_ALPHANUMERIC));
        match self.ask(Method::POST, &path, Some(&CloseGroup { drop }), Effect::Idempotent).await {
            Err(AdminError::Refused { status: 404, .. }) => Ok(0),
            Err(error) => Err(error),
            Ok((response, name)) => {
                let status: GroupStatus = read_json(response, name).await?;
                Ok(status.samples.complete)
            }
        }
    }

    /// Returns the status of a trial.
    pub async fn status(&self, trial: &TrialId) -> Result<TrialStatus, AdminError> {
        self.repeatable::<(), _>(Method::GET, &format!("/v1/trials/{trial}"), None).await
    }

    /// Returns a stream of a trial's captured calls, in order. The key of the trial suffices, so the token of the client
    /// needs no role `read`.
    pub async fn calls(
        &self,
        trial: &TrialOpened,
    ) -> Result<impl Stream<Item = Result<Call, AdminError>> + use<>, AdminError> {
        self.with_key_of(trial).ndjson(&format!("/v1/trials/{}/calls", trial.trial_id)).await
    }

    /// Returns a stream of a trial's recorded answers as chat messages, in order of the calls. The key of the trial
    /// suffices, so the token of the client needs no role `read`.
    pub async fn answers(
        &self,
        trial: &TrialOpened,
    ) -> Result<impl Stream<Item = Result<CapturedAnswer, AdminError>> + use<>, AdminError> {
        self.with_key_of(trial).ndjson(&format!("/v1/trials/{}/answers", trial.trial_id)).await
    }

    /// Returns the same client with the key of a trial in the place of the token.
    fn with_key_of(&self, trial: &TrialOpened) -> Self {
        Self { token: Some(trial.key.clone()), ..self.clone() }
    }

    /// Returns a stream of a sealed trial's branches with its reward, one row each. With `messages`, the calls of the rows
    /// have their messages and tools.
    pub async fn rollout(
        &self,
        trial: &TrialId,
        messages: bool,
    ) -> Result<impl Stream<Item = Result<RolloutRow, AdminError>>, AdminError> {
        let query = if messages { "?messages=true" } else { "" };
        self.ndjson(&format!("/v1/trials/{trial}/rollout{query}")).await
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
        if let Some(span) = &self.span {
            request = request.header(TRACEPARENT, span.traceparent());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        (request, name)
    }

    async fn repeatable<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<T, AdminError> {
        let (response, name) = self.ask(method, path, body, Effect::Idempotent).await?;
        read_json(response, name).await
    }

    /// Sends a request and retries while the proxy is unreachable. Returns the answer with the request's method and
    /// URL, for errors.
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
                // Without time for another wait, the last error is returned at once instead of after the wait.
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
        // A broken stream is not retried, since the caller has used its first items.
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
        // `request` has the URL already.
        source: source.without_url(),
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    // A server other than a proxy may answer without this JSON. Then its text is the message.
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
