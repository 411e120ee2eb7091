//! The JSON types of upstreams and of the policy.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A replica to add.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUpstream {
    /// The URL of a vLLM server, with or without `/v1`.
    pub url: String,
    /// The API key of the server (vLLM's `--api-key`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
}

// Not derived: logs must not contain the API key.
impl fmt::Debug for AddUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddUpstream({})", self.url)
    }
}

/// The status of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamStatus {
    /// Its id in `DELETE /v1/upstreams/{id}`, valid until the proxy ends.
    pub id: u64,
    /// Its URL without `/v1`.
    pub url: String,
    /// Whether it receives calls.
    pub state: UpstreamState,
    /// The reason why it is ejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of its calls in flight.
    pub in_flight: u64,
    /// The number of trials whose calls it receives.
    pub trials: u64,
    /// The model names that it serves, LoRA adapters included. Empty if they are not known.
    pub models: Vec<String>,
    /// The policy version of its weights.
    pub version: i32,
    /// Its KV cache, where trials are admitted by it (`-n auto`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache: Option<KvCacheStatus>,
}

/// The KV cache of a replica, and the trials that are open there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KvCacheStatus {
    /// The number of open trials, including those that have made no call yet.
    pub open_trials: u64,
    /// The size of the cache in tokens. Absent if its metrics are missing or unusable: then at most four trials are open there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_tokens: Option<u64>,
    /// The number of tokens that open trials may need at once. It is the size, corrected by the cost of misses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_tokens: Option<u64>,
    /// The number of tokens that the open trials are expected to need at once until they end.
    pub forecast_tokens: u64,
}

/// Whether a replica receives calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamState {
    /// It receives calls.
    Healthy,
    /// It receives no call until it is healthy again.
    Ejected,
    /// It receives no further call, and is removed after its calls in flight.
    Draining,
}

/// The policy version from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// The label of the weights that all upstreams have from now on.
    pub version: Label,
}

/// A label of weights, as text or as a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Label {
    /// A number, such as a training step.
    Number(i64),
    /// Any other label.
    Text(String),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The options of a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PausePolicy {
    /// The treatment of new calls.
    #[serde(default)]
    pub mode: PauseMode,
    /// Whether to answer only once no call is in flight.
    #[serde(default)]
    pub wait: bool,
}

/// The treatment of calls that arrive during a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// They wait for the end of the pause, and are sent upstream then.
    #[default]
    Hold,
}

/// The policy version and the calls in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStatus {
    /// The current version.
    #[serde(flatten)]
    pub current: PolicyVersion,
    /// Whether new calls are held.
    pub paused: bool,
    /// The number of calls in flight at the upstreams.
    pub in_flight: u64,
    /// The number of held calls.
    pub held: u64,
    /// All versions so far.
    pub versions: Vec<PolicyVersion>,
}

/// A version and its label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyVersion {
    /// The ordinal that tokens of this version have in records and rows.
    pub version: i32,
    /// The label from the trainer or from vLLM. Null for version 0 without a label.
    pub label: Option<String>,
}
