//! The admin plane's contract for upstreams and the policy: what it takes and gives, as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `POST /v1/upstreams`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddUpstream {
    /// A vLLM server, with or without `/v1`.
    pub url: String,
    /// The API key that it wants (vLLM's `--api-key`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
}

impl fmt::Debug for AddUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddUpstream({})", self.url)
    }
}

/// One line of `GET /v1/upstreams`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Its name in `DELETE /v1/upstreams/{id}`, for as long as the proxy runs.
    pub id: u64,
    /// Without `/v1`.
    pub url: String,
    /// Whether it gets calls.
    pub state: UpstreamState,
    /// Why it was ejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Calls under way.
    pub in_flight: u64,
    /// Trials that stay with it.
    pub trials: u64,
    /// The names that it serves, LoRA adapters included; none where it does not tell.
    pub models: Vec<String>,
    /// The policy version of its weights.
    pub version: i32,
}

/// Whether an upstream gets calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamState {
    /// It does.
    Healthy,
    /// Not until it is well again.
    Ejected,
    /// Never again; it is gone once its calls have ended.
    Draining,
}

/// `POST /v1/policy`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// The trainer's name of the weights that all upstreams have from now on.
    pub version: Label,
}

/// A name that may be a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Label {
    /// Such as a step.
    Number(i64),
    /// Anything else.
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

/// `POST /v1/policy/pause`; the body may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PausePolicy {
    /// What becomes of new calls.
    #[serde(default)]
    pub mode: PauseMode,
    /// Answer only once no call is under way.
    #[serde(default)]
    pub wait: bool,
}

/// What becomes of calls that come in while weights are updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// They wait, and go upstream once resumed.
    #[default]
    Hold,
}

/// `GET /v1/policy`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// The version that was told last.
    #[serde(flatten)]
    pub current: PolicyVersion,
    /// New calls are held back.
    pub paused: bool,
    /// Calls under way at the upstreams.
    pub in_flight: u64,
    /// Calls that are held back.
    pub held: u64,
    /// Every version so far.
    pub versions: Vec<PolicyVersion>,
}

/// A version and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// What tokens are stamped with.
    pub version: i32,
    /// The trainer's or vLLM's name of it; none for the first, where nobody named it.
    pub label: Option<String>,
}
