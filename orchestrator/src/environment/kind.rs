//! The kinds of environments, and the features that each one lacks.

use std::fmt;
use std::str::FromStr;

use super::docker;
use crate::task::{Runner, Task};

/// How environments are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvironmentKind {
    /// A container of a Docker engine.
    Docker,
    /// A temporary directory and processes of this host. No sandbox.
    Local,
    /// An environment of Harbor's package, which runs the whole trial.
    Harbor,
}

impl fmt::Display for EnvironmentKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Docker => "docker",
            Self::Local => "local",
            Self::Harbor => "harbor",
        })
    }
}

impl FromStr for EnvironmentKind {
    type Err = UnknownEnvironment;

    fn from_str(name: &str) -> Result<Self, UnknownEnvironment> {
        match name {
            "docker" => Ok(Self::Docker),
            "local" => Ok(Self::Local),
            "harbor" => Ok(Self::Harbor),
            _ => Err(UnknownEnvironment(name.to_owned())),
        }
    }
}

/// The name of no [`EnvironmentKind`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown environment {0:?}; known environments: docker, local, harbor")]
pub struct UnknownEnvironment(String);

impl EnvironmentKind {
    /// Returns the program that runs the trials.
    pub fn runner(self) -> Runner {
        match self {
            Self::Docker | Self::Local => Runner::Rolltap,
            Self::Harbor => Runner::Harbor,
        }
    }

    /// Returns a feature of the task that this kind does not support, with the reason, or `None`.
    pub fn unsupported(self, task: &Task) -> Option<String> {
        let restricted = "a network mode other than \"public\": it has the network of this host";
        let composed = "environment/docker-compose.yaml: it has no containers";
        match self {
            Self::Local if !task.network.is_always_public() => Some(restricted.to_owned()),
            Self::Local if docker::has_services(task) => Some(composed.to_owned()),
            Self::Docker | Self::Local | Self::Harbor => None,
        }
    }
}
