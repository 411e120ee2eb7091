//! `task.toml` as types, with Harbor's defaults (schema 1.4).

use std::collections::BTreeMap;

use serde::Deserialize;

mod artifact;
mod environment;
mod fields;
mod mcp;
mod step;
mod verifier;

pub use artifact::{Artifact, MAIN_SERVICE};
pub use environment::EnvironmentConfig;
use fields::user;
pub use fields::{Healthcheck, NetworkMode};
pub use mcp::{McpServer, McpTransport};
pub use step::{MinReward, RewardStrategy, StepConfig};
pub use verifier::{Collect, VerifierConfig, VerifierEnvironmentMode};

/// `task.toml`. Values of `env` tables are resolved against the host's environment by [`super::Task::load`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TaskConfig {
    /// Version of Harbor's task format.
    pub schema_version: Option<String>,
    /// Its old name. None once the file is read: [`Self::schema_version`] has its value.
    pub version: Option<toml::Value>,
    /// Name and description, as published.
    pub task: Option<PackageConfig>,
    /// Anything the author wants to say about the task.
    pub metadata: toml::Table,
    /// Where the task came from.
    pub source: Option<String>,
    /// Limits of the agent.
    pub agent: AgentConfig,
    /// How the work is judged.
    pub verifier: VerifierConfig,
    /// Where the work is done.
    pub environment: EnvironmentConfig,
    /// For the oracle.
    pub solution: SolutionConfig,
    /// Files to keep besides the logs.
    pub artifacts: Vec<Artifact>,
    /// How rewards of steps become one; none for the default.
    pub multi_step_reward_strategy: Option<RewardStrategy>,
    /// Several instructions worked at in one environment.
    pub steps: Vec<StepConfig>,
}

/// `[task]`
#[derive(Clone, Debug, Deserialize)]
pub struct PackageConfig {
    /// `org/name`
    pub name: String,
    /// Any non-empty string.
    #[serde(default)]
    pub version: Option<String>,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Who wrote it.
    #[serde(default)]
    pub authors: Vec<Author>,
    /// For searching.
    #[serde(default)]
    pub keywords: Vec<String>,
}

/// One of `[task].authors`.
#[derive(Clone, Debug, Deserialize)]
pub struct Author {
    /// The name.
    pub name: String,
    /// The address.
    #[serde(default)]
    pub email: Option<String>,
}

/// `[agent]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    /// Seconds that the agent has; none for no limit.
    pub timeout_sec: Option<f64>,
    /// User name or id that the agent works as; none for the image's.
    #[serde(deserialize_with = "user")]
    pub user: Option<String>,
    /// Network access while the agent works; none for the environment's.
    pub network_mode: Option<NetworkMode>,
    /// For [`NetworkMode::Allowlist`].
    pub allowed_hosts: Option<Vec<String>>,
}

/// `[solution]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SolutionConfig {
    /// Environment variables of `solution/solve.sh`.
    pub env: BTreeMap<String, String>,
}
