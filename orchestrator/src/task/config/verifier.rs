//! `[verifier]`: how the work is judged.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::artifact::service_name;
use super::fields::user;
use super::{EnvironmentConfig, MAIN_SERVICE, NetworkMode};

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
    /// In the agent's environment, or in one of its own; none for what [`Self::environment`] says.
    pub environment_mode: Option<VerifierEnvironmentMode>,
    /// The environment of its own.
    pub environment: Option<Box<EnvironmentConfig>>,
    /// Commands to run after the agent, before artifacts are collected.
    pub collect: Vec<Collect>,
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

impl VerifierConfig {
    /// Where the tests run, if this table says so.
    pub fn mode(&self) -> Option<VerifierEnvironmentMode> {
        self.environment_mode.or(self.environment.as_ref().map(|_| VerifierEnvironmentMode::Separate))
    }
}

/// Where the tests run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifierEnvironmentMode {
    /// Where the agent worked.
    #[default]
    Shared,
    /// In an environment of their own.
    Separate,
}

/// A command that puts what only lives in memory into files that can be collected.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Table")]
pub struct Collect {
    /// The command.
    pub command: String,
    /// Which service of a compose file runs it.
    pub service: String,
    /// Seconds that it may take.
    pub timeout_sec: f64,
    /// User name or id that it runs as; none for the image's.
    pub user: Option<String>,
}

#[derive(Deserialize)]
struct Table {
    command: String,
    #[serde(default)]
    service: Option<String>,
    #[serde(default)]
    timeout_sec: Option<f64>,
    #[serde(default, deserialize_with = "user")]
    user: Option<String>,
}

impl TryFrom<Table> for Collect {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        let service = service_name(table.service.unwrap_or_else(|| MAIN_SERVICE.to_owned()))?;
        let timeout_sec = table.timeout_sec.unwrap_or(60.0);
        Ok(Self { command: table.command, service, timeout_sec, user: table.user })
    }
}
