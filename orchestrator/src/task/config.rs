//! `task.toml` as types, with Harbor's defaults (schema 1.4).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// `task.toml`. Values of `env` tables are resolved against the host's environment by [`super::Task::load`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TaskConfig {
    /// Version of Harbor's task format; `version` is its old name.
    #[serde(alias = "version")]
    pub schema_version: Option<String>,
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
    /// How rewards of steps become one.
    pub multi_step_reward_strategy: Option<RewardStrategy>,
    /// Several instructions worked at in one environment.
    pub steps: Vec<toml::Table>,
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

/// `[verifier]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct VerifierConfig {
    /// Seconds that `tests/test.sh` has.
    pub timeout_sec: f64,
    /// Environment variables of `tests/test.sh`.
    pub env: BTreeMap<String, String>,
    /// User name or id that it runs as; none for the image's.
    #[serde(deserialize_with = "user")]
    pub user: Option<String>,
    /// Network access of the tests; none for the environment's.
    pub network_mode: Option<NetworkMode>,
    /// For [`NetworkMode::Allowlist`].
    pub allowed_hosts: Option<Vec<String>>,
    /// In the agent's environment, or in one of its own.
    pub environment_mode: Option<VerifierEnvironmentMode>,
    /// The environment of its own.
    pub environment: Option<toml::Table>,
    /// Commands to run after the agent.
    pub collect: Vec<toml::Table>,
}

impl Default for VerifierConfig {
    fn default() -> Self {
        Self {
            timeout_sec: 600.0,
            env: BTreeMap::new(),
            user: None,
            network_mode: None,
            allowed_hosts: None,
            environment_mode: None,
            environment: None,
            collect: Vec::new(),
        }
    }
}

/// `[environment]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct EnvironmentConfig {
    /// Seconds that the environment may take to be built and started.
    pub build_timeout_sec: f64,
    /// A ready image; wins over `environment/Dockerfile`, as in Harbor.
    pub docker_image: Option<String>,
    /// Operating system, in any case of letters.
    pub os: String,
    /// CPUs, whole or in part; none for no limit.
    pub cpus: Option<f64>,
    /// MiB of memory; none for no limit.
    pub memory_mb: Option<u64>,
    /// MiB of disk. Not enforced, as in Harbor.
    pub storage_mb: Option<u64>,
    /// GPUs; none for none.
    pub gpus: Option<u32>,
    /// Which GPUs will do.
    pub gpu_types: Option<Vec<String>>,
    /// A TPU slice.
    pub tpu: Option<toml::Table>,
    /// Environment variables of everything that runs there.
    pub env: BTreeMap<String, String>,
    /// Where skills for the agent are, inside.
    pub skills_dir: Option<String>,
    /// Where commands run; none for the image's `WORKDIR`.
    pub workdir: Option<String>,
    /// Network access.
    pub network_mode: Option<NetworkMode>,
    /// For [`NetworkMode::Allowlist`].
    pub allowed_hosts: Option<Vec<String>>,
    /// A command that tells when the environment is ready.
    pub healthcheck: Option<toml::Table>,
    /// Tool servers for the agent.
    pub mcp_servers: Vec<toml::Table>,
    /// Old spelling of [`Self::memory_mb`], as in `"2G"`.
    pub(super) memory: Option<String>,
    /// Old spelling of [`Self::storage_mb`].
    pub(super) storage: Option<String>,
    /// Old spelling of [`Self::network_mode`]; counts only where the new one is not given.
    pub allow_internet: Option<bool>,
}

impl Default for EnvironmentConfig {
    fn default() -> Self {
        Self {
            build_timeout_sec: 600.0,
            docker_image: None,
            os: "linux".to_owned(),
            cpus: None,
            memory_mb: None,
            storage_mb: None,
            gpus: None,
            gpu_types: None,
            tpu: None,
            env: BTreeMap::new(),
            skills_dir: None,
            workdir: None,
            network_mode: None,
            allowed_hosts: None,
            healthcheck: None,
            mcp_servers: Vec::new(),
            memory: None,
            storage: None,
            allow_internet: None,
        }
    }
}

/// `[solution]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SolutionConfig {
    /// Environment variables of `solution/solve.sh`.
    pub env: BTreeMap<String, String>,
}

/// What may be reached over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// Everything.
    Public,
    /// Nothing.
    NoNetwork,
    /// `allowed_hosts` alone.
    Allowlist,
}

/// Where the tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifierEnvironmentMode {
    /// Where the agent worked.
    Shared,
    /// In an environment of their own.
    Separate,
}

/// How rewards of steps become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RewardStrategy {
    /// The mean of each key.
    Mean,
    /// Those of the last step.
    Final,
}

/// An entry of `artifacts`: a path inside, or a table with one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Artifact {
    /// The path.
    Path(String),
    /// `source` and what is to be done with it.
    Table(toml::Table),
}

impl EnvironmentConfig {
    /// The network access asked for, old spelling included.
    pub fn network(&self) -> NetworkMode {
        match (self.network_mode, self.allow_internet) {
            (Some(mode), _) => mode,
            (None, Some(false)) => NetworkMode::NoNetwork,
            (None, _) => NetworkMode::Public,
        }
    }
}

/// A user name, or an id as a number.
fn user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    struct User;
    impl serde::de::Visitor<'_> for User {
        type Value = String;
        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("a user name or a user id")
        }
        fn visit_str<E>(self, name: &str) -> Result<String, E> {
            Ok(name.to_owned())
        }
        fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<String, E> {
            u32::try_from(id).map(|id| id.to_string()).map_err(|_| {
                E::invalid_value(serde::de::Unexpected::Signed(id), &"a user id from 0 to 4294967295")
            })
        }
    }
    deserializer.deserialize_any(User).map(Some)
}
