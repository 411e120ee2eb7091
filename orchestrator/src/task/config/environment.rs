//! `[environment]`: where the work is done.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Healthcheck, McpServer, NetworkMode};

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
    pub healthcheck: Option<Healthcheck>,
    /// Tool servers for the agent.
    pub mcp_servers: Vec<McpServer>,
    /// Old spelling of [`Self::memory_mb`], as in `"2G"`.
    pub(in crate::task) memory: Option<String>,
    /// Old spelling of [`Self::storage_mb`].
    pub(in crate::task) storage: Option<String>,
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
