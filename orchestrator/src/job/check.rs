//! Checks a job for errors before any part of the job starts.

use rolltap_proxy::check_sampling;

use super::{JobError, JobSettings, ProxyChoice};
use crate::agents::AgentSpec;
use crate::environment::{EnvironmentKind, Mount, MountKind, has_services};
use crate::task::{Artifact, MAIN_SERVICE, Task};
use crate::trial::TaskOverrides;

pub(super) fn check(settings: &JobSettings) -> Result<(), JobError> {
    trials_can_be_meant(settings)?;
    if settings.auto_concurrency && matches!(settings.proxy, ProxyChoice::External { .. }) {
        return Err(JobError::AutoConcurrency);
    }
    check_sampling(&settings.sampling)?;
    if settings.cluster.is_some() {
        fits_workers(settings)?;
    }
    settings.timeouts.check()?;
    settings.reward_rules.check(&settings.tasks)?;
    job_fits_environment(settings)?;
    agents_fit_environment(settings)
}

fn trials_can_be_meant(settings: &JobSettings) -> Result<(), JobError> {
    let (tasks, agents) = (settings.tasks.len() as u64, settings.agents.len() as u64);
    let samples = u64::from(settings.samples.get());
    let trials = tasks.saturating_mul(agents).saturating_mul(samples);
    // A mistyped `-k` would otherwise plan millions of trials.
    if trials > JobSettings::MAX_TRIALS {
        return Err(JobError::TooManyTrials { tasks, agents, samples, trials });
    }
    Ok(())
}

/// Checks that workers on other hosts can run the trials.
fn fits_workers(settings: &JobSettings) -> Result<(), JobError> {
    let refuse = |why: String| Err(JobError::NotForWorkers(why));
    if settings.environment == EnvironmentKind::Harbor {
        return refuse("--cluster runs trials in docker or local, not in harbor".to_owned());
    }
    if matches!(settings.proxy, ProxyChoice::Embedded { public: None, .. }) {
        return refuse(
            "agents on workers must reach the proxy: give a running proxy as --proxy, or to rolltap serve --listen and \
             --public-url"
                .to_owned(),
        );
    }
    for agent in &settings.agents {
        if matches!(agent.spec, AgentSpec::Installed(_)) && agent.asked.contains('/') {
            return refuse(format!(
                "agent {} is defined in a file of this host, which workers do not have: use an agent that `rolltap agents` \
                 lists, or run without --cluster",
                agent.asked
            ));
        }
        if let Some(skill) = agent.skills.first() {
            return refuse(format!(
                "skill {} is a directory of this host, which workers do not have: put it into the tasks, or run without \
                 --cluster",
                skill.name
            ));
        }
    }
    Ok(())
}

/// Checks the job's additions to its tasks. Harbor reports by itself which additions it does not support.
fn job_fits_environment(settings: &JobSettings) -> Result<(), JobError> {
    let (kind, artifacts) = (settings.environment, &settings.overrides.artifacts);
    let beyond = match kind {
        EnvironmentKind::Docker => {
            let tasks = settings.tasks.iter().map(|task| &task.task);
            of_service(artifacts).or_else(|| beyond_docker(&settings.overrides, tasks))
        }
        EnvironmentKind::Local => of_service(artifacts).or_else(|| beyond_local(settings)),
        EnvironmentKind::Harbor => settings
            .overrides
            .kill_agent_processes
            .then(|| "kill_agent_processes, as Harbor starts the tests itself".to_owned()),
    };
    beyond.map_or(Ok(()), |what| Err(JobError::Adds { kind, what }))
}

/// Returns the first artifact of another service than the agent's. It would be fetched from the agent's.
fn of_service(artifacts: &[Artifact]) -> Option<String> {
    let other = artifacts.iter().map(Artifact::service).find(|service| *service != MAIN_SERVICE)?;
    Some(format!("an artifact of service {other:?}: only those of {MAIN_SERVICE:?} are collected"))
}

fn beyond_local(settings: &JobSettings) -> Option<String> {
    let TaskOverrides { keep, mounts, .. } = &settings.overrides;
    let skills = settings.agents.iter().find_map(|agent| agent.skills.first());
    let what = match (mounts.first(), keep, skills) {
        (Some(mount), ..) => format!("a mount at {}", mount.target),
        (None, true, _) => "`delete: false`".to_owned(),
        (None, false, Some(skill)) => format!("the skill {}", skill.name),
        (None, false, None) => return None,
    };
    Some(format!("{what}, as it has no containers"))
}

/// Checks the job's additions to one more task.
pub(super) fn task_fits_environment(
    kind: EnvironmentKind,
    overrides: &TaskOverrides,
    task: &Task,
) -> Result<(), JobError> {
    let is_docker = kind == EnvironmentKind::Docker;
    let beyond = is_docker.then(|| beyond_docker(overrides, [task])).flatten();
    beyond.map_or(Ok(()), |what| Err(JobError::Adds { kind, what }))
}

fn beyond_docker<'t>(overrides: &TaskOverrides, tasks: impl IntoIterator<Item = &'t Task>) -> Option<String> {
    let TaskOverrides { keep, mounts, .. } = overrides;
    let composed = tasks.into_iter().find(|task| has_services(task)).map(|task| task.dir.display());
    // `docker compose` removes all services of a project together.
    if let (true, Some(dir)) = (keep, &composed) {
        return Some(format!("`delete: false` for {dir}, as services go together"));
    }
    mounts.iter().find_map(|Mount { kind, source, target, .. }| {
        let is_named = !source.is_empty() && !source.contains('/');
        match (kind, &composed) {
            _ if !target.starts_with('/') => Some(format!("a mount at {target:?}, which is not absolute")),
            (MountKind::Bind, _) if !source.starts_with('/') => {
                Some(format!("a bind of {source:?}, which is not absolute"))
            }
            (MountKind::Volume, _) if !is_named => Some(format!("a volume {source:?}, which is no name")),
            (MountKind::Volume, Some(dir)) => {
                Some(format!("volume {source} for {dir}, whose docker-compose.yaml has its own"))
            }
            _ => None,
        }
    })
}

fn agents_fit_environment(settings: &JobSettings) -> Result<(), JobError> {
    let kind = settings.environment;
    let is_wrong =
        // Only the environment `harbor` has Harbor's agents, and it has no others.
        |spec: &AgentSpec| matches!(spec, AgentSpec::Harbor(_)) != (kind == EnvironmentKind::Harbor);
    match settings.agents.iter().find(|agent| is_wrong(&agent.spec)) {
        Some(agent) => Err(JobError::WrongAgent { agent: agent.spec.name().to_owned(), kind }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_of_other_services_are_refused() {
        let of = |service: &str| Artifact { service: Some(service.to_owned()), ..Artifact::of("/data") };
        assert_eq!(of_service(&[Artifact::of("/a"), of(MAIN_SERVICE)]), None);
        let refused = of_service(&[of(MAIN_SERVICE), of("db")]).unwrap();
        assert_eq!(refused, "an artifact of service \"db\": only those of \"main\" are collected");
    }
}
