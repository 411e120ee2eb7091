//! The sections of Harbor's `JobConfig` that its `TrialConfig` has too.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Mount;
use crate::task::McpServer;

/// Harbor's `AgentConfig`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AgentEntry {
    /// Who works; none for Harbor's default, the oracle.
    pub name: Option<String>,
    /// The model as upstream names it, or with a provider's name and a `/` before that.
    pub model_name: Option<String>,
    /// Where its model is served: our upstream.
    pub base_url: Option<String>,
    /// The environment variable of this host that has the upstream's key.
    pub model_api_key_name: Option<String>,
    /// How many of its trials run at once.
    pub n_concurrent: Option<NonZeroUsize>,
    /// Agents that name the same group share that limit.
    pub concurrency_group: Option<String>,
    /// Seconds that it has instead of what the task says.
    pub override_timeout_sec: Option<f64>,
    /// Seconds that getting it ready may take.
    pub override_setup_timeout_sec: Option<f64>,
    /// Seconds that it has at most.
    pub max_timeout_sec: Option<f64>,
    /// Settings of this agent alone.
    pub kwargs: Map<String, Value>,
    /// Tool servers that it is told of besides those of tasks.
    pub mcp_servers: Vec<McpServer>,
    /// What it is taught besides what tasks teach: directories of this host.
    pub skills: Vec<String>,
    /// Its environment variables, which may be `${VAR}` or `${VAR:-default}` of this host's.
    pub env: BTreeMap<String, String>,
}

/// Harbor's `EnvironmentConfig`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EnvironmentSection {
    /// Which kind; none for Docker.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// In Harbor a class; for us the name of a kind that Harbor does not know, as our own records have it.
    pub import_path: Option<String>,
    /// Build images though they are kept from before.
    pub force_build: bool,
    /// CPUs instead of what tasks say.
    pub override_cpus: Option<f64>,
    /// MiB of memory instead of what tasks say.
    pub override_memory_mb: Option<u64>,
    /// MiB of disk instead of what tasks say.
    pub override_storage_mb: Option<u64>,
    /// Environments are removed when their trials are over, which is the default.
    pub delete: Option<bool>,
    /// What of this host is seen in every environment in which an agent works.
    pub mounts: Option<Vec<Mount>>,
    /// Environment variables of every environment.
    pub env: BTreeMap<String, String>,
}

/// Harbor's `VerifierConfig`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerifierSection {
    /// Seconds that tests have instead of what the task says.
    pub override_timeout_sec: Option<f64>,
    /// Seconds that tests have at most.
    pub max_timeout_sec: Option<f64>,
    /// Environment variables of every task's tests.
    pub env: BTreeMap<String, String>,
    /// No tests are run, and no trial has a reward.
    pub disable: bool,
}
