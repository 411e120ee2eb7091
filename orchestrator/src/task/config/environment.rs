//! `[environment]`: the environment of the agent.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::lax::{filled, given, number};
use super::{Healthcheck, McpServer, NetworkMode};

/// `[environment]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct EnvironmentConfig {
    /// The limit in seconds for the build and start of the environment.
    #[serde(deserialize_with = "number")]
    pub build_timeout_sec: f64,
    /// A ready image. Takes precedence over `environment/Dockerfile`, as in Harbor.
    #[serde(deserialize_with = "filled")]
    pub docker_image: Option<String>,
    /// The operating system, in upper or lower case.
    pub os: String,
    /// The number of CPUs, which may be fractional. `None` for no limit.
    #[serde(deserialize_with = "given")]
    pub cpus: Option<f64>,
    /// The memory in MiB. `None` for no limit.
    #[serde(deserialize_with = "given")]
    pub memory_mb: Option<u64>,
    /// The disk space in MiB. Not enforced, as in Harbor.
    #[serde(deserialize_with = "given")]
    pub storage_mb: Option<u64>,
    /// The number of GPUs. `None` for 0.
    #[serde(deserialize_with = "given")]
    pub gpus: Option<u32>,
    /// The acceptable types of GPU.
    pub gpu_types: Option<Vec<String>>,
    /// A TPU slice.
    pub tpu: Option<toml::Table>,
    /// Environment variables of every command in the environment.
    pub env: BTreeMap<String, String>,
    /// The directory of the agent's skills, in the environment.
    pub skills_dir: Option<String>,
    /// The working directory of commands. `None` for the image's `WORKDIR`.
    pub workdir: Option<String>,
    /// The network access.
    pub network_mode: Option<NetworkMode>,
    /// The hosts of [`NetworkMode::Allowlist`].
    pub allowed_hosts: Option<Vec<String>>,
    /// A command that checks whether the environment is ready.
    pub healthcheck: Option<Healthcheck>,
    /// Tool servers for the agent.
    pub mcp_servers: Vec<McpServer>,
    /// Old spelling of [`Self::memory_mb`], such as `"2G"`.
    pub(in crate::task) memory: Option<String>,
    /// Old spelling of [`Self::storage_mb`].
    pub(in crate::task) storage: Option<String>,
    /// Old spelling of [`Self::network_mode`]. Counts only if the new key is absent.
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

impl EnvironmentConfig {
    /// Returns the network access, also from the old spelling.
    pub fn network(&self) -> NetworkMode {
        match (self.network_mode, self.allow_internet) {
            (Some(mode), _) => mode,
            (None, Some(false)) => NetworkMode::NoNetwork,
            (None, _) => NetworkMode::Public,
        }
    }
}
