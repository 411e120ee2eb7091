//! What is wrong with a job, said before anything of it starts.

use super::{JobError, JobSettings};
use crate::agents::AgentSpec;
use crate::environment::EnvironmentKind;

pub(super) fn check(settings: &JobSettings) -> Result<(), JobError> {
    settings.timeouts.check()?;
    tasks_fit_environment(settings)?;
    agents_fit_environment(settings)?;
    agents_see_tasks(settings)?;
    oracle_has_solutions(settings)
}

fn tasks_fit_environment(settings: &JobSettings) -> Result<(), JobError> {
    for task in &settings.tasks {
        if let Some(what) = settings.environment.unsupported(&task.task) {
            let (kind, dir) = (settings.environment, task.task.dir.clone());
            return Err(JobError::Unsupported { kind, dir, what });
        }
    }
    Ok(())
}

fn agents_fit_environment(settings: &JobSettings) -> Result<(), JobError> {
    let kind = settings.environment;
    let is_wrong =
        |spec: &AgentSpec| matches!(spec, AgentSpec::Harbor(_)) != (kind == EnvironmentKind::Harbor);
    match settings.agents.iter().find(|agent| is_wrong(&agent.spec)) {
        Some(agent) => Err(JobError::WrongAgent { agent: agent.spec.name().to_owned(), kind }),
        None => Ok(()),
    }
}

fn agents_see_tasks(settings: &JobSettings) -> Result<(), JobError> {
    for agent in &settings.agents {
        for task in &settings.tasks {
            if let Some(what) = agent.spec.would_not_see(&agent.sees(&task.task)) {
                let agent = agent.spec.name().to_owned();
                return Err(JobError::WouldNotSee { task: task.task.dir.clone(), agent, what });
            }
        }
    }
    Ok(())
}

fn oracle_has_solutions(settings: &JobSettings) -> Result<(), JobError> {
    if !settings.agents.iter().any(|agent| agent.spec == AgentSpec::Oracle) {
        return Ok(());
    }
    let mut scripts = settings.tasks.iter().flat_map(|task| task.task.solution_scripts());
    match scripts.find(|script| !script.is_file()) {
        Some(missing) => Err(JobError::NoSolution(missing)),
        None => Ok(()),
    }
}
