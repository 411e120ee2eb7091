//! Checks before a job starts that the upstreams answer, and which model they serve.

use std::collections::BTreeSet;
use std::time::Duration;

use rolltap_proxy::{Address, History, InvalidAddress, RenderSettings, TlsError, UpstreamClient};

use super::Upstreams;
use crate::common::suggest::{did_you_mean, nearest};
use crate::doctor::{self, DoctorError, DoctorSettings, Finding, read_models};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time without a byte of an answer to a call. A server with a long queue is slow and not broken.
const CALL_TIMEOUT: Duration = Duration::from_mins(5);

/// Why a job's model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// No upstream is named.
    #[error(
        "agent {agent:?} calls a model: give --upstream URL of a vLLM server, or --proxy URL of a running rolltap proxy"
    )]
    NoUpstream {
        /// The agent.
        agent: String,
    },
    /// An upstream does not answer like a vLLM server.
    #[error(
        "upstream {url} does not answer: {reason}; is vLLM running there, and is --upstream-api-key right?"
    )]
    Unreachable {
        /// The upstream.
        url: String,
        /// The error.
        reason: String,
    },
    /// The API key of the upstreams cannot be sent.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    /// The files of TLS to an upstream cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An upstream does not serve the model.
    #[error("upstream {url} does not serve model {model:?}{}; it serves: {}", did_you_mean(nearest(.model, .served.iter().map(String::as_str))), .served.join(", "))]
    UnknownModel {
        /// The upstream.
        url: String,
        /// The requested model.
        model: String,
        /// The models that the upstream serves.
        served: Vec<String>,
    },
    /// No model is named, and the upstream does not serve exactly one.
    #[error("upstream {url} serves {} models: choose one with -m MODEL{}", .served.len(), among(.served))]
    ModelNotChosen {
        /// The upstream.
        url: String,
        /// The models that the upstream serves.
        served: Vec<String>,
    },
    /// A call to an upstream has no tokens that can be trained.
    #[error(
        "upstream {url}: nothing of a call to model {model:?} can be trained, so the job would capture nothing:\n{}\n\
         `rolltap doctor --upstream {url} --model {model}` examines the server; --no-preflight runs the job nevertheless",
        problems(.findings)
    )]
    NothingCaptured {
        /// The upstream.
        url: String,
        /// The model.
        model: String,
        /// What is broken.
        findings: Vec<Finding>,
    },
    /// The call that proves a capture cannot be made.
    #[error("cannot check that calls are captured; --no-preflight runs the job without the check")]
    Doctor(#[from] DoctorError),
    /// No model is named, and the upstreams of an external proxy cannot be asked.
    #[error("agent {agent:?} needs a model's name when --proxy is given: add -m MODEL")]
    ModelNeeded {
        /// The agent.
        agent: String,
    },
}

fn among(served: &[String]) -> String {
    if served.is_empty() { String::new() } else { format!(", one of: {}", served.join(", ")) }
}

fn problems(findings: &[Finding]) -> String {
    let line = |Finding { check, found, remedy, .. }: &Finding| {
        format!("  {check}: {found}\n    {}", remedy.as_deref().unwrap_or_default())
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Makes a call to each model at each upstream, and checks that a trainer can use its tokens.
pub(super) async fn check_captures(
    upstreams: &Upstreams,
    models: BTreeSet<String>,
) -> Result<(), PreflightError> {
    for address in upstreams.authorized()? {
        for model in &models {
            let settings = DoctorSettings {
                address: address.clone(),
                tls: upstreams.tls.clone(),
                http_proxy: upstreams.http_proxy.clone(),
                session_headers: upstreams.session_headers.clone(),
                model: None,
                // One call has no earlier turn.
                render: RenderSettings::default(),
                history: History::Off,
                timeout: CALL_TIMEOUT,
            };
            let findings = doctor::captures(settings, model.clone()).await?;
            if !findings.is_empty() {
                let (url, model) = (address.to_string(), model.clone());
                return Err(PreflightError::NothingCaptured { url, model, findings });
            }
        }
    }
    Ok(())
}

/// Returns the requested model if every upstream serves it. Without a requested model, returns the only one served.
pub(super) async fn choose_model(
    upstreams: &Upstreams,
    asked: Option<String>,
) -> Result<Option<String>, PreflightError> {
    let mut chosen = asked;
    for address in upstreams.authorized()? {
        let url = address.to_string();
        let served = served_models(address, upstreams).await?;
        chosen = Some(match chosen {
            Some(model) if served.contains(&model) => model,
            // The exact name has priority, because some served names contain a `/` too.
            Some(model) if without_provider(&model).is_some_and(|bare| served.contains(&bare)) => {
                without_provider(&model).unwrap_or(model)
            }
            Some(model) => return Err(PreflightError::UnknownModel { url, model, served }),
            None => match <[String; 1]>::try_from(served) {
                Ok([only]) => only,
                Err(served) => return Err(PreflightError::ModelNotChosen { url, served }),
            },
        });
    }
    Ok(chosen)
}

/// Removes the provider from a model's name. Harbor writes `openai/qwen3`.
fn without_provider(model: &str) -> Option<String> {
    model.split_once('/').map(|(_, bare)| bare.to_owned())
}

async fn served_models(address: Address, upstreams: &Upstreams) -> Result<Vec<String>, PreflightError> {
    let url = address.to_string();
    let unreachable = |reason| PreflightError::Unreachable { url: url.clone(), reason };
    let client = UpstreamClient::new(address, &upstreams.tls, TIMEOUT)?.through(upstreams.http_proxy.clone());
    let answer = client.get("/v1/models").await.map_err(|error| unreachable(error.to_string()))?;
    Ok(read_models(&answer).map_err(unreachable)?.into_ids())
}
