//! An embedded proxy in front of the server, and calls through it as agents make them.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use rolltap_agent::{ClientTimeouts, client_for};
use rolltap_proxy::api::{OpenTrial, TrialOpened};
use rolltap_proxy::{PoolSettings, RefutedKind, RunningProxy, Settings};
use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TaskId;
use serde_json::Value;
use tempfile::TempDir;

use super::server::Served;
use super::{DoctorError, DoctorSettings};
use crate::admin_client::{AdminClient, AdminError};

/// The time for the proxy to end.
const GRACE: Duration = Duration::from_secs(2);

/// A proxy with captures in a temporary directory.
pub(super) struct Probe {
    proxy: RunningProxy,
    admin: AdminClient,
    http: reqwest::Client,
    pub(super) served: Served,
    /// Removed with the captures when it drops.
    _data: TempDir,
}

/// An answer as the agent gets it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// The time of each piece of the body, from the moment at which the request was sent.
    pub(super) arrivals: Vec<Duration>,
}

/// The message of a chat answer.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) content: String,
    pub(super) reasoning: Option<String>,
}

/// A trial of one call or one conversation.
pub(super) struct ProbeTrial<'a> {
    probe: &'a Probe,
    opened: TrialOpened,
}

impl Probe {
    pub(super) async fn start(settings: DoctorSettings, served: Served) -> Result<Self, DoctorError> {
        let data = tempfile::tempdir()?;
        let pool = PoolSettings {
            tls: settings.tls,
            http_proxy: settings.http_proxy,
            session_headers: settings.session_headers,
            ..PoolSettings::default()
        };
        let on_loopback = Settings::on_loopback(vec![settings.address], data.path().to_owned());
        let proxy = rolltap_proxy::start(Settings {
            pool,
            render: settings.render,
            history: settings.history,
            upstream_idle_timeout: settings.timeout,
            ..on_loopback
        })
        .await?;
        let url = format!("http://{}", proxy.admin_addr());
        let admin = AdminClient::new(&url, None)?;
        let timeouts = ClientTimeouts { connect: settings.timeout, read: settings.timeout };
        let parsed = reqwest::Url::parse(&url).map_err(|_| AdminError::InvalidUrl { url })?;
        let http = client_for(&parsed, timeouts)?;
        Ok(Self { proxy, admin, http, served, _data: data })
    }

    /// Opens a trial.
    pub(super) async fn open(&self) -> Result<ProbeTrial<'_>, String> {
        let task = TaskId::new("doctor").map_err(|error| error.to_string())?;
        let opened = self.admin.open_trial(&OpenTrial::of_task(task)).await;
        Ok(ProbeTrial { probe: self, opened: opened.map_err(|error| error.to_string())? })
    }

    /// Returns the kinds of requests that the server rendered otherwise than the proxy.
    pub(super) async fn refuted_kinds(&self) -> Vec<RefutedKind> {
        self.proxy.refuted_kinds().await
    }

    pub(super) async fn stop(self) {
        if let Err(error) = self.proxy.shutdown(GRACE).await {
            tracing::debug!(%error, "the proxy of the examination did not end in time");
        }
    }
}

impl ProbeTrial<'_> {
    /// Posts a request to a path of the agent plane, such as `/v1/chat/completions`.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Answer, String> {
        let address = self.probe.proxy.agent_addrs().first().ok_or("the proxy has no address")?;
        let url = format!("http://{address}/t/{}{path}", self.opened.key);
        let begun = Instant::now();
        let text = |error: reqwest::Error| error.to_string();
        let mut answer = self.probe.http.post(url).json(body).send().await.map_err(text)?;
        let (status, mut body, mut arrivals) = (answer.status().as_u16(), Vec::new(), Vec::new());
        while let Some(piece) = answer.chunk().await.map_err(text)? {
            arrivals.push(begun.elapsed());
            body.extend_from_slice(&piece);
        }
        Ok(Answer { status, body, arrivals })
    }

    /// Seals the trial, and returns its calls in the order of their arrival.
    pub(super) async fn calls(self) -> Result<Vec<Call>, String> {
        let (admin, trial) = (&self.probe.admin, &self.opened);
        admin.seal(&trial.trial_id).await.map_err(|error| error.to_string())?;
        let calls = admin.calls(trial).await.map_err(|error| error.to_string())?;
        calls.try_collect().await.map_err(|error| error.to_string())
    }
}

impl Answer {
    /// Returns the message of the first choice of a chat answer. Its fields are empty if there is none.
    pub(super) fn message(&self) -> Message {
        let answer = serde_json::from_slice::<Value>(&self.body).unwrap_or_default();
        let text =
            |key: &str| Some(answer.pointer(&format!("/choices/0/message/{key}"))?.as_str()?.to_owned());
        Message {
            content: text("content").unwrap_or_default(),
            // vLLM before 0.12 has the older name.
            reasoning: text("reasoning").or_else(|| text("reasoning_content")),
        }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the status and the beginning of the body, for a finding.
    pub(super) fn excerpt(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect();
        format!("{}: {text}", self.status)
    }
}
