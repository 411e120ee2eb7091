//! The values of a job that replace those of its tasks.

use std::collections::BTreeMap;
use std::path::Path;

use crate::environment::Mount;
use crate::task::{Artifact, Task, TaskError, resolve_env};
use crate::trial::TrialExtras;

/// The values of a job that replace those of its tasks or are added to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskOverrides {
    /// The number of CPUs, which may be fractional.
    pub cpus: Option<f64>,
    /// The memory in MiB.
    pub memory_mb: Option<u64>,
    /// The disk space in MiB.
    pub storage_mb: Option<u64>,
    /// Environment variables of every environment. A value may be `${VAR}` or `${VAR:-default}`, a variable of this
    /// host.
    pub env: BTreeMap<String, String>,
    /// Whether containers remain after their trials.
    pub keep: bool,
    /// Whether the agent's processes are ended before the tests of tasks that do not decide it themselves.
    pub kill_agent_processes: bool,
    /// Directories and volumes of this host that are mounted in every environment in which an agent works.
    pub mounts: Vec<Mount>,
    /// Environment variables of every task's tests, with the same references.
    pub verifier_env: BTreeMap<String, String>,
    /// Whether to skip the tests. No trial has a reward then.
    pub without_verifier: bool,
    /// Files to collect in addition to those that tasks name.
    pub artifacts: Vec<Artifact>,
    /// Text that is appended to every instruction.
    pub instructions: Vec<String>,
}

impl TaskOverrides {
    /// Overrides the environment settings of a task.
    ///
    /// # Errors
    /// Fails if a variable of this host is not set.
    pub(crate) fn apply(&self, task: &mut Task) -> Result<(), TaskError> {
        let environment = &mut task.config.environment;
        environment.cpus = self.cpus.or(environment.cpus);
        environment.memory_mb = self.memory_mb.or(environment.memory_mb);
        environment.storage_mb = self.storage_mb.or(environment.storage_mb);
        environment.env.extend(self.environment_env()?);
        // A variable of the job replaces one of the task, which then need not be set on this host.
        let of_steps = task.steps.iter_mut().map(|step| &mut step.task.config.verifier);
        for verifier in of_steps.chain([&mut task.config.verifier]) {
            verifier.env.retain(|name, _| !self.verifier_env.contains_key(name));
        }
        Ok(())
    }

    /// Returns the environment variables of every environment.
    ///
    /// # Errors
    /// Fails if a variable of this host is not set.
    pub(crate) fn environment_env(&self) -> Result<BTreeMap<String, String>, TaskError> {
        resolved(&self.env, "environment.env")
    }

    /// Returns the additions to a trial's task that do not depend on the agent.
    ///
    /// # Errors
    /// Fails if a variable of this host is not set.
    pub(crate) fn extras(&self) -> Result<TrialExtras, TaskError> {
        Ok(TrialExtras {
            without_verifier: self.without_verifier,
            verifier_env: resolved(&self.verifier_env, "verifier.env")?,
            artifacts: self.artifacts.clone(),
            mounts: self.mounts.clone(),
            keep: self.keep,
            kill_agent_processes: self.kill_agent_processes,
            instructions: self.instructions.clone(),
            ..TrialExtras::default()
        })
    }
}

/// Replaces references to variables of this host by their values.
pub(crate) fn resolved(
    table: &BTreeMap<String, String>,
    section: &str,
) -> Result<BTreeMap<String, String>, TaskError> {
    let mut table = table.clone();
    resolve_env(&mut table, section, Path::new("job"), |name| std::env::var(name).ok())?;
    Ok(table)
}
