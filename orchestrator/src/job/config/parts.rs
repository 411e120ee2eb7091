//! The sections of Harbor's `JobConfig` that its `TrialConfig` has as well.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Mount;
use crate::task::McpServer;

/// Harbor's `AgentConfig`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentEntry {
    /// The name of the agent. `None` for Harbor's default, the oracle.
    pub name: Option<String>,
    /// The model's name at the upstream, optionally with a provider's name and a `/` before it.
    pub model_name: Option<String>,
    /// The URL of the model's server, which becomes the upstream.
    pub base_url: Option<String>,
    /// The environment variable of this host that holds the upstream's API key.
    pub model_api_key_name: Option<String>,
    /// The number of this agent's trials that run at once.
    pub n_concurrent: Option<NonZeroUsize>,
    /// Agents that name the same group share that limit.
    pub concurrency_group: Option<String>,
    /// The time limit of the agent in seconds, instead of the task's.
    pub override_timeout_sec: Option<f64>,
    /// The time limit for the setup of the agent, in seconds.
    pub override_setup_timeout_sec: Option<f64>,
    /// The upper bound of the agent's time limit, in seconds.
    pub max_timeout_sec: Option<f64>,
    /// Settings that only this agent knows.
    pub kwargs: Map<String, Value>,
    /// MCP servers that the agent gets in addition to those of tasks.
    pub mcp_servers: Vec<McpServer>,
    /// Skills that the agent gets in addition to those of tasks: directories of this host.
    pub skills: Vec<String>,
    /// Environment variables of the agent. A value may be `${VAR}` or `${VAR:-default}`, a variable of this host.
    pub env: BTreeMap<String, String>,
}

/// Harbor's `EnvironmentConfig`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnvironmentSection {
    /// The kind of environment. `None` for Docker.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// In Harbor, a class. Here, the name of a kind that Harbor does not know, as rolltap's own records have it.
    pub import_path: Option<String>,
    /// Whether to build images even if they exist from an earlier run.
    pub force_build: bool,
    /// The number of CPUs, instead of the task's.
    pub override_cpus: Option<f64>,
    /// The memory in MiB, instead of the task's.
    pub override_memory_mb: Option<u64>,
    /// The disk space in MiB, instead of the task's.
    pub override_storage_mb: Option<u64>,
    /// Whether an environment is removed at the end of its trial. The default is `true`.
    pub delete: Option<bool>,
    /// Directories and volumes of this host that are mounted in every environment in which an agent works.
    pub mounts: Option<Vec<Mount>>,
    /// Environment variables of every environment.
    pub env: BTreeMap<String, String>,
}

/// Harbor's `VerifierConfig`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerifierSection {
    /// The time limit of the tests in seconds, instead of the task's.
    pub override_timeout_sec: Option<f64>,
    /// The upper bound of the tests' time limit, in seconds.
    pub max_timeout_sec: Option<f64>,
    /// Environment variables of every task's tests.
    pub env: BTreeMap<String, String>,
    /// Whether to skip the tests. No trial has a reward then.
    pub disable: bool,
}
