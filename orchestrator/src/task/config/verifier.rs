//! `[verifier]`: the settings of the tests.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::artifact::service_name;
use super::fields::user;
use super::lax::{given, number};
use super::{EnvironmentConfig, MAIN_SERVICE, NetworkMode};

/// `[verifier]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct VerifierConfig {
    /// The limit in seconds for `tests/test.sh`.
    #[serde(deserialize_with = "number")]
    pub timeout_sec: f64,
    /// Environment variables of `tests/test.sh`.
    pub env: BTreeMap<String, String>,
    /// The name or id of the user that runs the tests. `None` for the image's user.
    #[serde(deserialize_with = "user")]
    pub user: Option<String>,
    /// The network access of the tests. `None` for that of the environment.
    pub network_mode: Option<NetworkMode>,
    /// The hosts of [`NetworkMode::Allowlist`].
    pub allowed_hosts: Option<Vec<String>>,
    /// Whether the tests have a separate environment. If `None`, they have one exactly if [`Self::environment`] is set.
    pub environment_mode: Option<VerifierEnvironmentMode>,
    /// The separate environment of the tests.
    pub environment: Option<Box<EnvironmentConfig>>,
    /// Commands that run after the agent and before artifacts are collected.
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
    /// Returns where the tests run, or `None` if this table does not set it.
    pub fn mode(&self) -> Option<VerifierEnvironmentMode> {
        self.environment_mode.or(self.environment.as_ref().map(|_| VerifierEnvironmentMode::Separate))
    }
}

/// Where the tests run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifierEnvironmentMode {
    /// In the agent's environment.
    #[default]
    Shared,
    /// In a separate environment.
    Separate,
}

/// A command that writes data from memory to files, so that they can be collected.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Table")]
pub struct Collect {
    /// The shell command.
    pub command: String,
    /// The service of a compose file that runs the command.
    pub service: String,
    /// The limit in seconds.
    pub timeout_sec: f64,
    /// The name or id of the user that runs the command. `None` for the image's user.
    pub user: Option<String>,
}

#[derive(Deserialize)]
struct Table {
    command: String,
    #[serde(default)]
    service: Option<String>,
    #[serde(default, deserialize_with = "given")]
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
