//! What is wrong with a job, said before anything of it starts.

use super::{JobError, JobSettings};
use crate::agents::AgentSpec;
use crate::environment::{EnvironmentKind, MountKind, has_services};

pub(super) fn check(settings: &JobSettings) -> Result<(), JobError> {
    settings.timeouts.check()?;
    tasks_fit_environment(settings)?;
    job_fits_environment(settings)?;
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

/// What the job adds to its tasks, which Harbor judges itself.
fn job_fits_environment(settings: &JobSettings) -> Result<(), JobError> {
    let kind = settings.environment;
    let refused = |what: &str| Err(JobError::Adds { kind, what: what.to_owned() });
    if kind == EnvironmentKind::Harbor {
        return Ok(());
    }
    let composed = settings.tasks.iter().find(|task| has_services(&task.task));
    let composed = composed.map(|task| task.task.dir.display());
    if settings.overrides.keep {
        match (&composed, kind) {
            (_, EnvironmentKind::Local) => return refused("keeping environments: it has no containers"),
            (Some(dir), _) => return refused(&format!("keeping the services of {dir}: they go together")),
            (None, _) => {}
        }
    }
    for mount in &settings.overrides.mounts {
        let (is_local, is_path) = (kind == EnvironmentKind::Local, mount.source.starts_with('/'));
        if is_local || !mount.target.starts_with('/') || is_path != (mount.kind == MountKind::Bind) {
            let why = if is_local {
                "it has no mounts"
            } else {
                "a bind is from an absolute path, a volume has a name; targets are absolute"
            };
            return refused(&format!("mounting {:?} at {:?}: {why}", mount.source, mount.target));
        }
        if let Some(dir) = composed.as_ref().filter(|_| mount.kind == MountKind::Volume) {
            return refused(&format!("a volume for {dir}, whose docker-compose.yaml has its own"));
        }
    }
    if kind == EnvironmentKind::Local && settings.agents.iter().any(|agent| !agent.skills.is_empty()) {
        return refused("skills of an agent: they have a place in containers alone");
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
