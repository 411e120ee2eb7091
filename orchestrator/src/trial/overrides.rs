//! What a job says instead of its tasks.

use std::collections::BTreeMap;
use std::path::Path;

use crate::environment::Mount;
use crate::task::{Artifact, Task, TaskError, resolve_env};
use crate::trial::TrialExtras;

/// What a job says instead of its tasks, or beside them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskOverrides {
    /// CPUs, whole or in part.
    pub cpus: Option<f64>,
    /// MiB of memory.
    pub memory_mb: Option<u64>,
    /// MiB of disk.
    pub storage_mb: Option<u64>,
    /// Environment variables of every environment. A value may be `${VAR}` or `${VAR:-default}` of this host's.
    pub env: BTreeMap<String, String>,
    /// Containers are not removed when their trials are over.
    pub keep: bool,
    /// What of this host is seen in every environment in which an agent works.
    pub mounts: Vec<Mount>,
    /// Environment variables of every task's tests, of the same form.
    pub verifier_env: BTreeMap<String, String>,
    /// No tests are run, and no trial has a reward.
    pub without_verifier: bool,
    /// Files to keep besides those that tasks name.
    pub artifacts: Vec<Artifact>,
    /// Text that is added to every instruction.
    pub instructions: Vec<String>,
}

impl TaskOverrides {
    /// Lays over a task what its environment is made of.
    ///
    /// # Errors
    /// A variable of this host is not set.
    pub(crate) fn apply(&self, task: &mut Task) -> Result<(), TaskError> {
        let environment = &mut task.config.environment;
        environment.cpus = self.cpus.or(environment.cpus);
        environment.memory_mb = self.memory_mb.or(environment.memory_mb);
        environment.storage_mb = self.storage_mb.or(environment.storage_mb);
        environment.env.extend(self.environment_env()?);
        Ok(())
    }

    /// The environment variables of every environment.
    ///
    /// # Errors
    /// A variable of this host is not set.
    pub(crate) fn environment_env(&self) -> Result<BTreeMap<String, String>, TaskError> {
        resolved(&self.env, "environment.env")
    }

    /// What a trial adds to its task, whoever works at it.
    ///
    /// # Errors
    /// A variable of this host is not set.
    pub(crate) fn extras(&self) -> Result<TrialExtras, TaskError> {
        Ok(TrialExtras {
            without_verifier: self.without_verifier,
            verifier_env: resolved(&self.verifier_env, "verifier.env")?,
            artifacts: self.artifacts.clone(),
            mounts: self.mounts.clone(),
            keep: self.keep,
            instructions: self.instructions.clone(),
            ..TrialExtras::default()
        })
    }
}

/// Variables with what they refer to on this host.
pub(crate) fn resolved(
    table: &BTreeMap<String, String>,
    section: &str,
) -> Result<BTreeMap<String, String>, TaskError> {
    let mut table = table.clone();
    resolve_env(&mut table, section, Path::new("job"), |name| std::env::var(name).ok())?;
    Ok(table)
}
