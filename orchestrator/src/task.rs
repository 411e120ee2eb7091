//! Harbor task directories: `task.toml`, `instruction.md`, `environment/`, `tests/test.sh`, `solution/solve.sh`, and
//! the same again for each of a task's steps.
//!
//! Everything that can be wrong with a task is told here, before a trial starts: missing files, wrong types, impossible
//! values, variables that are not set, and parts of Harbor's format that rolltap does not support yet.

mod check;
mod config;
mod discover;
mod env_template;
mod error;
mod git_origin;
pub(crate) mod glob;
mod inputs;
mod instruction;
mod load;
mod network;
pub(crate) mod network_policy;
mod parse;
mod separate;
mod step;
mod support;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use config::{
    AgentConfig, Artifact, Author, Collect, EnvironmentConfig, Healthcheck, MAIN_SERVICE, McpServer,
    McpTransport, MinReward, NetworkMode, PackageConfig, RewardStrategy, SolutionConfig, StepConfig,
    TaskConfig, VerifierConfig, VerifierEnvironmentMode,
};
pub use discover::{discover, discover_for};
pub(crate) use env_template::resolve as resolve_env;
pub use error::TaskError;
pub use git_origin::GitOrigin;
pub(crate) use glob::Pattern;
use inputs::Input;
pub use load::Runner;
pub use network::NetworkPlan;
pub use network_policy::{AllowedHosts, InvalidHost, NetworkPolicy};
pub use separate::SeparateVerifier;
pub use step::Step;

const CONFIG: &str = "task.toml";

/// One task, loaded and found to be something that rolltap can run. A step of one is a task too: what its agent and its
/// tests are given reads the same.
#[derive(Clone, Debug)]
pub struct Task {
    /// `[task].name`, or else the directory's name.
    pub name: String,
    /// The task directory, absolute.
    pub dir: PathBuf,
    /// What the agent is told. Empty where [`Self::steps`] say it.
    pub instruction: String,
    /// What an agent is to go on from: a trajectory of ATIF, as a file of this host.
    pub trajectory: Option<PathBuf>,
    /// `task.toml`, its `env` tables resolved.
    pub config: TaskConfig,
    /// What its phases may reach.
    pub network: NetworkPlan,
    /// Where the tests run, if that is not where the agent works.
    pub separate_verifier: Option<Box<SeparateVerifier>>,
    /// What is done one after the other; empty for a task in one go.
    pub steps: Vec<Step>,
    environment: PathBuf,
    solution: Input,
    tests: Vec<Input>,
}

impl Task {
    /// `environment/`, or wherever the build context is. Need not exist where the task names an image.
    pub fn environment_dir(&self) -> PathBuf {
        self.environment.clone()
    }

    /// The Dockerfile in [`Self::environment_dir`].
    pub fn dockerfile(&self) -> PathBuf {
        self.environment.join("Dockerfile")
    }

    /// The directories whose contents make up `/tests`, a later one over those before it.
    pub fn tests_dirs(&self) -> impl Iterator<Item = &Path> {
        self.tests.iter().map(Input::path)
    }

    /// `solution/`. Need not exist.
    pub fn solution_dir(&self) -> PathBuf {
        self.solution.path().to_owned()
    }

    /// `solution/solve.sh`. Need not exist.
    pub fn solution_script(&self) -> PathBuf {
        self.solution.path().join("solve.sh")
    }

    /// The scripts that the oracle runs, one for each step. Need not exist.
    pub fn solution_scripts(&self) -> Vec<PathBuf> {
        if self.steps.is_empty() {
            return vec![self.solution_script()];
        }
        self.steps.iter().map(|step| step.task.solution_script()).collect()
    }
}
