//! Harbor task directories: `task.toml`, `instruction.md`, `environment/`, `tests/test.sh`, `solution/solve.sh`, and
//! the same files for each step of a task.
//!
//! Every error in a task is reported here, before a trial starts. Errors are missing files, wrong types, impossible
//! values, unset variables, and parts of Harbor's format that rolltap does not support yet.

mod check;
mod config;
mod discover;
mod document;
mod env_template;
mod error;
mod files;
mod git_origin;
pub(crate) mod glob;
mod host_variables;
mod inputs;
mod inspect;
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
mod warning;

use std::path::{Path, PathBuf};

pub use config::{
    AgentConfig, Artifact, Author, Collect, EnvironmentConfig, Healthcheck, MAIN_SERVICE, McpServer,
    McpTransport, MinReward, NetworkMode, PackageConfig, RewardStrategy, SolutionConfig, StepConfig,
    TaskConfig, VerifierConfig, VerifierEnvironmentMode,
};
pub use discover::{directories, discover};
pub(crate) use env_template::resolve as resolve_env;
pub use error::TaskError;
pub(crate) use files::TaskFiles;
pub use git_origin::GitOrigin;
pub(crate) use glob::Pattern;
pub use host_variables::{MissingVariable, MissingVariables, UsedTables};
use inputs::Input;
pub use inspect::{Inspection, Problem, Severity, inspect, same_names};
pub use load::{Examined, Runner};
pub use network::NetworkPlan;
pub use network_policy::{AllowedHosts, InvalidHost, NetworkPolicy};
pub use separate::SeparateVerifier;
pub use step::Step;
pub use warning::{TaskWarning, summed_up};

const CONFIG: &str = "task.toml";

/// A loaded task that rolltap can run. A step of a task is also a `Task`, so that the inputs of its agent and of its
/// tests are read in the same way.
#[derive(Clone, Debug)]
pub struct Task {
    /// `[task].name`, or the directory's name if there is no `[task]`.
    pub name: String,
    /// The task directory, absolute.
    pub dir: PathBuf,
    /// The instruction for the agent. Empty if [`Self::steps`] have the instructions.
    pub instruction: String,
    /// The path on this host of an ATIF trajectory that the agent continues from.
    pub trajectory: Option<PathBuf>,
    /// `task.toml`. References to variables of this host stay in its `env` tables until the task is about to run.
    pub config: TaskConfig,
    /// The network policy of each phase.
    pub network: NetworkPlan,
    /// The environment of the tests, if they do not run where the agent works.
    pub separate_verifier: Option<Box<SeparateVerifier>>,
    /// The steps, in order. Empty for a task without steps.
    pub steps: Vec<Step>,
    environment: PathBuf,
    solution: Input,
    tests: Vec<Input>,
}

impl Task {
    /// Returns the build context, normally `environment/`. It need not exist if the task names an image.
    pub fn environment_dir(&self) -> PathBuf {
        self.environment.clone()
    }

    /// Returns the path of the Dockerfile in [`Self::environment_dir`].
    pub fn dockerfile(&self) -> PathBuf {
        self.environment.join("Dockerfile")
    }

    /// Returns the directories that are copied into `/tests`. Files of a later directory replace those of an earlier
    /// one.
    pub fn tests_dirs(&self) -> impl Iterator<Item = &Path> {
        self.tests.iter().map(Input::path)
    }

    /// Returns `solution/`, or a copy without excluded files. It need not exist.
    pub fn solution_dir(&self) -> PathBuf {
        self.solution.path().to_owned()
    }

    /// Returns the path of `solution/solve.sh`. It need not exist.
    pub fn solution_script(&self) -> PathBuf {
        self.solution.path().join("solve.sh")
    }

    /// Returns the scripts that the oracle runs, one for each step. They need not exist.
    pub fn solution_scripts(&self) -> Vec<PathBuf> {
        if self.steps.is_empty() {
            return vec![self.solution_script()];
        }
        self.steps.iter().map(|step| step.task.solution_script()).collect()
    }
}
