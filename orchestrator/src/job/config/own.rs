//! The `rolltap` section of a job's file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use rolltap_proxy::{History, in_words};
use rolltap_rollout::rollout::RewardRule;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ConfigError;
use crate::common::suggest::nearest;

/// The `rolltap` section of a job's file: the flags of `rolltap run` that Harbor lacks, with `_` for `-`. All keys are
/// optional.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnConfig {
    /// The base URLs of the vLLM servers.
    pub upstream: Vec<String>,
    /// The API key of the upstreams.
    pub upstream_api_key: Option<String>,
    /// Files with certificates of authorities that are trusted for `https` upstreams, besides those of the system.
    pub upstream_ca: Vec<PathBuf>,
    /// The certificate with which the proxy identifies itself to `https` upstreams.
    pub upstream_client_cert: Option<PathBuf>,
    /// The private key of that certificate.
    pub upstream_client_key: Option<PathBuf>,
    /// The URL of the HTTP proxy between the proxy and its upstreams.
    pub upstream_http_proxy: Option<String>,
    /// The names of the headers in which upstreams get the session id of a conversation.
    pub session_header: Vec<String>,
    /// The certificate with which the proxy serves agents. It requires `listen` and `public_url`.
    pub tls_cert: Option<PathBuf>,
    /// The private key of that certificate.
    pub tls_key: Option<PathBuf>,
    /// Whether a call to each upstream must be captured before the job starts. The default is `true`.
    pub preflight: Option<bool>,
    /// The URL of the admin plane of a running proxy, to use instead of an embedded proxy.
    pub proxy: Option<String>,
    /// The address on which an embedded proxy listens for agents of other machines.
    pub listen: Option<SocketAddr>,
    /// The URL by which those agents reach that address.
    pub public_url: Option<String>,
    /// A file with the admin token of the running proxy.
    pub proxy_token_file: Option<PathBuf>,
    /// Files with certificates of authorities that are trusted for the admin plane of the running proxy.
    pub proxy_ca: Vec<PathBuf>,
    /// The certificate with which the job identifies itself to that admin plane.
    pub proxy_client_cert: Option<PathBuf>,
    /// The private key of that certificate.
    pub proxy_client_key: Option<PathBuf>,
    /// How the proxy treats the tokens of earlier turns.
    pub history: Option<History>,
    /// Keys that override those of every request.
    pub sampling: Option<Map<String, Value>>,
    /// The directory of the served model.
    pub tokenizer: Option<PathBuf>,
    /// The chat template that the upstreams were started with.
    pub chat_template: Option<PathBuf>,
    /// The template arguments that the upstreams use if a request has none.
    pub default_chat_template_kwargs: Option<Map<String, Value>>,
    /// The format in which the upstreams pass messages to the template.
    pub chat_template_content_format: Option<String>,
    /// Whether the upstreams have vLLM's `--exclude-tools-when-tool-choice-none`.
    pub exclude_tools_when_tool_choice_none: bool,
    /// Where trials run, for the kinds that Harbor does not know.
    pub environment: Option<String>,
    /// The number of trials of one task that run at once.
    pub n_concurrent_per_task: Option<NonZeroUsize>,
    /// Whether fewer trials run at once where more would not fit into the KV caches of the upstreams.
    pub auto_concurrency: bool,
    /// The job stops after this many consecutive trials without a trainable call. 0 disables this limit.
    pub max_empty_trials: Option<u32>,
    /// The time limit of a whole trial, in seconds.
    pub trial_deadline_sec: Option<f64>,
    /// The rule that makes the number to train on of the rewards of a trial.
    pub reward: Option<RewardRule>,
    /// Such rules for single tasks, by the name of a task or of its directory, or by a shell pattern of such names.
    pub task_rewards: BTreeMap<String, RewardRule>,
    /// Whether the job runs without the tasks that cannot be used.
    pub skip_invalid: bool,
    /// Whether the agent's processes are ended before the tests of tasks that do not decide it themselves.
    pub kill_agent_processes: bool,
    /// Whether the rollout files have the messages of each call.
    pub messages: bool,
}

/// The fields above. A test checks that the two lists agree.
pub(super) const KEYS: [&str; 34] = [
    "upstream",
    "upstream_api_key",
    "upstream_ca",
    "upstream_client_cert",
    "upstream_client_key",
    "upstream_http_proxy",
    "session_header",
    "tls_cert",
    "tls_key",
    "preflight",
    "proxy",
    "listen",
    "public_url",
    "proxy_token_file",
    "proxy_ca",
    "proxy_client_cert",
    "proxy_client_key",
    "history",
    "sampling",
    "tokenizer",
    "chat_template",
    "default_chat_template_kwargs",
    "chat_template_content_format",
    "exclude_tools_when_tool_choice_none",
    "environment",
    "n_concurrent_per_task",
    "auto_concurrency",
    "max_empty_trials",
    "trial_deadline_sec",
    "reward",
    "task_rewards",
    "skip_invalid",
    "kill_agent_processes",
    "messages",
];

/// Keys that rolltap's own records have in addition to settings. They are ignored, so that a job's `config.json` is a
/// valid job file.
const RECORDED: [&str; 3] = ["version", "job_id", "service"];

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
            .map_err(|error| wrong(format!("rolltap.{}", error.path()), in_words(&error.inner().to_string())))
    }
}
