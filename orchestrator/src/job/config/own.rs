//! The `rolltap` section of a job's file.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use rolltap_proxy::History;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ConfigError;
use crate::common::suggest::nearest;

/// The `rolltap` section of a job's file: the flags of `rolltap run` that Harbor has not, with `_` for `-`. All optional.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OwnConfig {
    /// vLLM servers.
    pub upstream: Vec<String>,
    /// The key that they want.
    pub upstream_api_key: Option<String>,
    /// Admin plane of a running proxy, instead of an embedded one.
    pub proxy: Option<String>,
    /// Where an embedded proxy listens, for agents of other machines.
    pub listen: Option<SocketAddr>,
    /// How they reach that.
    pub public_url: Option<String>,
    /// File with the token that it wants.
    pub proxy_token_file: Option<PathBuf>,
    /// What becomes of earlier turns' tokens.
    pub history: Option<History>,
    /// Keys laid over every request.
    pub sampling: Option<Map<String, Value>>,
    /// The served model's directory.
    pub tokenizer: Option<PathBuf>,
    /// The chat template that the upstreams were started with.
    pub chat_template: Option<PathBuf>,
    /// What the upstreams give the template where a request says nothing.
    pub default_chat_template_kwargs: Option<Map<String, Value>>,
    /// How they give messages to the template.
    pub chat_template_content_format: Option<String>,
    /// Whether the upstreams have vLLM's `--exclude-tools-when-tool-choice-none`.
    pub exclude_tools_when_tool_choice_none: bool,
    /// Where trials run, for the kinds that Harbor does not know.
    pub environment: Option<String>,
    /// How many trials of a task run at once.
    pub n_concurrent_per_task: Option<NonZeroUsize>,
    /// The job stops after so many trials in a row of whose calls nothing can be trained; 0 for never.
    pub max_empty_trials: Option<u32>,
    /// Seconds that a whole trial may take.
    pub trial_deadline_sec: Option<f64>,
}

/// The fields above; a test holds them together.
pub(super) const KEYS: [&str; 17] = [
    "upstream",
    "upstream_api_key",
    "proxy",
    "listen",
    "public_url",
    "proxy_token_file",
    "history",
    "sampling",
    "tokenizer",
    "chat_template",
    "default_chat_template_kwargs",
    "chat_template_content_format",
    "exclude_tools_when_tool_choice_none",
    "environment",
    "n_concurrent_per_task",
    "max_empty_trials",
    "trial_deadline_sec",
];

/// What our own records say beside settings, so that a job's `config.json` is a job's file.
const RECORDED: [&str; 2] = ["version", "job_id"];

impl OwnConfig {
    pub(super) fn of(mut section: Value) -> Result<Self, ConfigError> {
        if section.is_null() {
            return Ok(Self::default());
        }
        let wrong = |key: String, problem: String| ConfigError::Value { key, problem };
        let Value::Object(fields) = &mut section else {
            return Err(wrong("rolltap".to_owned(), "expected keys with values".to_owned()));
        };
        fields.retain(|key, _| !RECORDED.contains(&key.as_str()));
        if let Some(key) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let (key, nearest) = (key.clone(), nearest(key, KEYS));
            return Err(ConfigError::Unknown { key, nearest, known: KEYS.join(", ") });
        }
        serde_path_to_error::deserialize(section)
            .map_err(|error| wrong(format!("rolltap.{}", error.path()), error.inner().to_string()))
    }
}
