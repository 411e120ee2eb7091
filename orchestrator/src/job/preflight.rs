//! Before a job starts: does its model answer, and which one is it?

use std::error::Error;
use std::time::Duration;

use serde::Deserialize;

use super::Upstreams;
use crate::common::suggest::{did_you_mean, nearest};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a job's model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// No server named.
    #[error(
        "agent {agent:?} calls a model: give --upstream URL of a vLLM server, or --proxy URL of a running rolltap proxy"
    )]
    NoUpstream {
        /// The agent.
        agent: String,
    },
    /// The server does not answer as one.
    #[error(
        "upstream {url} does not answer: {reason}; is vLLM running there, and is --upstream-api-key right?"
    )]
    Unreachable {
        /// The server.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The server has no such model.
    #[error("upstream {url} does not serve model {model:?}{}; it serves: {}", did_you_mean(nearest(.model, .served.iter().map(String::as_str))), .served.join(", "))]
    UnknownModel {
        /// The server.
        url: String,
        /// As asked for.
        model: String,
        /// What there is.
        served: Vec<String>,
    },
    /// No model named, and not exactly one to take.
    #[error("upstream {url} serves {} models: choose one with -m MODEL{}", .served.len(), among(.served))]
    ModelNotChosen {
        /// The server.
        url: String,
        /// What there is.
        served: Vec<String>,
    },
    /// No model named, and no server of ours to ask.
    #[error("agent {agent:?} needs a model's name when --proxy is given: add -m MODEL")]
    ModelNeeded {
        /// The agent.
        agent: String,
    },
}

fn among(served: &[String]) -> String {
    if served.is_empty() { String::new() } else { format!(", one of: {}", served.join(", ")) }
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

/// The model to use: the one asked for, if every upstream serves it, or else the only one that they serve.
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

/// Harbor's models are named with their provider, `openai/qwen3`. Some served names have a `/` too, so they come first.
fn without_provider(model: &str) -> Option<String> {
    model.split_once('/').map(|(_, bare)| bare.to_owned())
}

async fn served_models(url: &str, api_key: Option<&str>) -> Result<Vec<String>, PreflightError> {
    let unreachable = |reason| PreflightError::Unreachable { url: url.to_owned(), reason };
    let failed = |error: reqwest::Error| unreachable(innermost(&error));
    let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(failed)?;
    let mut request = client.get(format!("{url}/v1/models"));
    if let Some(key) = api_key {
        request = request.bearer_auth(key);
    }
    let response = request.send().await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(unreachable(format!("GET /v1/models was answered {}", response.status())));
    }
    let models: Models = response.json().await.map_err(failed)?;
    Ok(models.data.into_iter().map(|model| model.id).collect())
}

/// What the system said, without the layers around it.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
