//! The kinds of environments, and the features that each one lacks.

use std::fmt;
use std::str::FromStr;

use super::docker;
use crate::common::suggest::{did_you_mean, nearest};
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

impl EnvironmentKind {
    const ALL: [Self; 3] = [Self::Docker, Self::Local, Self::Harbor];

    fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Local => "local",
            Self::Harbor => "harbor",
        }
    }
}

impl fmt::Display for EnvironmentKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for EnvironmentKind {
    type Err = UnknownEnvironment;

    fn from_str(name: &str) -> Result<Self, UnknownEnvironment> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownEnvironment { name: name.to_owned() })
    }
}

/// The name of no [`EnvironmentKind`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown environment {name:?}{}", remedy(.name))]
pub struct UnknownEnvironment {
    name: String,
}

/// The environments of Harbor 0.25, except `docker`.
const OF_HARBOR: [&str; 33] = [
    "ack",
    "apple-container",
    "beam",
    "blaxel",
    "cua-cloud",
    "cwsandbox",
    "daytona",
    "e2b",
    "ec2",
    "gke",
    "hf-sandbox",
    "hyperbrowser",
    "islo",
    "kata",
    "kernel",
    "langsmith",
    "modal",
    "mosaic",
    "novita",
    "opensandbox",
    "openshift",
    "podman",
    "prime",
    "runloop",
    "runta",
    "sail",
    "sbx",
    "singularity",
    "skypilot",
    "smol",
    "tensorlake",
    "use-computer",
    "vercel",
];

/// Returns the end of the error for an unknown name.
fn remedy(name: &str) -> String {
    // `module.path:ClassName` is a class of Harbor's.
    if OF_HARBOR.contains(&name) || name.contains(':') {
        return format!(" of rolltap: Harbor has it, so run it with -e harbor --harbor-env {name}");
    }
    let of_harbor = nearest(name, OF_HARBOR).map(|near| format!("harbor --harbor-env {near}"));
    let known = EnvironmentKind::ALL.map(EnvironmentKind::name);
    let near = nearest(name, known).map(str::to_owned).or(of_harbor);
    let hint = did_you_mean(near.as_deref());
    format!(
        "{hint}; known environments: {}; those of Harbor run with -e harbor --harbor-env NAME",
        known.join(", ")
    )
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_environment_is_answered_with_the_way_to_run_it() {
        let error = |name: &str| name.parse::<EnvironmentKind>().unwrap_err().to_string();
        assert!(
            error("daytona").ends_with("run it with -e harbor --harbor-env daytona"),
            "{}",
            error("daytona")
        );
        assert!(error("my.module:Class").ends_with("--harbor-env my.module:Class"));
        assert!(
            error("dockr").contains("(did you mean \"docker\"?); known environments: docker, local, harbor;")
        );
        assert!(error("modl").contains("(did you mean \"harbor --harbor-env modal\"?)"), "{}", error("modl"));
        assert!(!error("x").contains("did you mean"));
    }
}
