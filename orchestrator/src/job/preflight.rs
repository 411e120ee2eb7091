//! Checks before a job starts that the upstreams answer, and which model they serve.

use std::error::Error;
use std::time::Duration;

use rolltap_rollout::served_models::ServedModels;

use super::Upstreams;
use crate::common::suggest::{did_you_mean, nearest};

const TIMEOUT: Duration = Duration::from_secs(10);

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

/// Returns the requested model if every upstream serves it. Without a requested model, returns the only one served.
pub(super) async fn choose_model(
    upstreams: &Upstreams,
    asked: Option<String>,
) -> Result<Option<String>, PreflightError> {
    let mut chosen = asked;
    for address in &upstreams.addresses {
        let url = address.to_string();
        let served = served_models(&url, upstreams.api_key.as_deref()).await?;
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

async fn served_models(url: &str, api_key: Option<&str>) -> Result<Vec<String>, PreflightError> {
    let unreachable = |reason| PreflightError::Unreachable { url: url.to_owned(), reason };
    let failed = |error: reqwest::Error| unreachable(innermost(&error));
    // The HTTP proxy of this host's environment must not stand between rolltap and the upstream.
    let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(failed)?;
    let mut request = client.get(format!("{url}/v1/models"));
    if let Some(key) = api_key {
        request = request.bearer_auth(key);
    }
    let response = request.send().await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(unreachable(format!("GET /v1/models was answered {}", response.status())));
    }
    let body = response.bytes().await.map_err(failed)?;
    let served = ServedModels::parse(&body).map_err(|error| unreachable(error.to_string()))?;
    Ok(served.into_ids())
}

/// Returns the innermost cause of an error, without the layers around it.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
