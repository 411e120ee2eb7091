//! The types of `task.toml`, with Harbor's defaults (schema 1.4).

use std::collections::BTreeMap;

use serde::Deserialize;

mod artifact;
mod environment;
mod fields;
mod lax;
mod mcp;
mod step;
mod verifier;

pub use artifact::{Artifact, MAIN_SERVICE};
pub use environment::EnvironmentConfig;
use fields::user;
pub use fields::{Healthcheck, NetworkMode};
use lax::given;
pub use mcp::{McpServer, McpTransport};
pub use step::{MinReward, RewardStrategy, StepConfig};
pub use verifier::{Collect, VerifierConfig, VerifierEnvironmentMode};

/// `task.toml`. The values of `env` tables may refer to variables of this host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TaskConfig {
    /// The version of Harbor's task format.
    pub schema_version: Option<String>,
    /// The old name of [`Self::schema_version`], which has its value after parsing. Then this field is `None`.
    pub version: Option<toml::Value>,
    /// The name and description of the published package.
    pub task: Option<PackageConfig>,
    /// Free-form data of the author.
    pub metadata: toml::Table,
    /// The origin of the task.
    pub source: Option<String>,
    /// The limits of the agent.
    pub agent: AgentConfig,
    /// The settings of the verifier.
    pub verifier: VerifierConfig,
    /// The environment of the agent.
    pub environment: EnvironmentConfig,
    /// The settings of the oracle.
    pub solution: SolutionConfig,
    /// Files to collect from the environment, in addition to the logs.
    pub artifacts: Vec<Artifact>,
    /// How the rewards of the steps become one reward. `None` for the default.
    pub multi_step_reward_strategy: Option<RewardStrategy>,
    /// The steps: several instructions that are worked on in one environment.
    pub steps: Vec<StepConfig>,
}

impl TaskConfig {
    /// Returns whether the agent's processes are ended before the tests: `kill_agent_processes` of
    /// `[metadata.rolltap]`, a part of Harbor's free-form data. `None` if the task does not decide it.
    pub fn kills_agent_processes(&self) -> Option<bool> {
        self.metadata.get("rolltap")?.get("kill_agent_processes")?.as_bool()
    }
}

/// `[task]`
#[derive(Clone, Debug, Deserialize)]
pub struct PackageConfig {
    /// The name, `org/name`.
    pub name: String,
    /// The version, any non-empty text.
    #[serde(default)]
    pub version: Option<String>,
    /// A description for people.
    #[serde(default)]
    pub description: String,
    /// The authors.
    #[serde(default)]
    pub authors: Vec<Author>,
    /// Keywords for a search.
    #[serde(default)]
    pub keywords: Vec<String>,
}

/// An entry of `[task].authors`.
#[derive(Clone, Debug, Deserialize)]
pub struct Author {
    /// The author's name.
    pub name: String,
    /// The author's e-mail address.
    #[serde(default)]
    pub email: Option<String>,
}

/// `[agent]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    /// The agent's time limit in seconds. `None` for no limit.
    #[serde(deserialize_with = "given")]
    pub timeout_sec: Option<f64>,
    /// The name or id of the user that the agent runs as. `None` for the image's user.
    #[serde(deserialize_with = "user")]
    pub user: Option<String>,
    /// The network access of the agent. `None` for that of the environment.
    pub network_mode: Option<NetworkMode>,
    /// The hosts of [`NetworkMode::Allowlist`].
    pub allowed_hosts: Option<Vec<String>>,
}

/// `[solution]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SolutionConfig {
    /// Environment variables of `solution/solve.sh`.
    pub env: BTreeMap<String, String>,
}
