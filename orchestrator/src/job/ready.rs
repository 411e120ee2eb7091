//! Makes the tasks of a job ready to run: the job's overrides, and the values of variables of this host.

use super::tasks::JobTask;
use super::{JobError, JobSettings};
use crate::task::{MissingVariable, MissingVariables, UsedTables};

/// Applies the overrides of the job to its tasks, and resolves their references to variables of this host.
///
/// # Errors
/// Fails if variables are missing. The error has all variables of all tasks.
pub(super) fn make_ready(settings: &mut JobSettings) -> Result<(), JobError> {
    for task in &mut settings.tasks {
        settings.overrides.apply(&mut task.task)?;
    }
    let used = used_tables(settings);
    let missing = settings.tasks.iter_mut().filter_map(|task| task.task.resolve(used).err()).flatten();
    Ok(MissingVariables::check(missing.collect())?)
}

/// Returns the variables of this host that the tasks of the job need and that are missing. The tasks stay unchanged.
pub(super) fn missing_variables(settings: &JobSettings) -> Vec<MissingVariable> {
    let used = used_tables(settings);
    let of_task = |task: &JobTask| {
        let mut task = task.task.clone();
        settings.overrides.apply(&mut task).ok()?;
        task.resolve(used).err()
    };
    settings.tasks.iter().filter_map(of_task).flatten().collect()
}

/// Returns the tables of tasks that the job uses.
pub(super) fn used_tables(settings: &JobSettings) -> UsedTables {
    let names: Vec<_> = settings.agents.iter().map(|agent| agent.spec.name()).collect();
    UsedTables {
        solution: names.contains(&"oracle"),
        verifier: !settings.overrides.without_verifier,
        mcp_servers: names.iter().any(|name| !["oracle", "nop"].contains(name)),
    }
}
