//! Decides for each trial whether it is verified again, and on what.

use super::recorded::Recorded;
use super::tasks::Tasks;
use crate::environment::{EnvironmentError, Host, TrialLabel};
use crate::failure::chain;
use crate::job_dir::JobDir;
use crate::task::{Step, Task};
use crate::verify::Artifacts;

/// The decision for one trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The tests run again.
    Verify(Work),
    /// The version has the same reward as the trial, for this reason.
    Keep(&'static str),
    /// The tests cannot run again, for this reason: a predicate of the trial.
    Refuse(String),
}

/// The work of the agent that the tests verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The collected artifacts, in a fresh environment of the tests.
    Artifacts,
    /// A copy of the container with this id, in which the agent worked.
    Container(String),
}

const NOT_CHOSEN: &str = "its task is not chosen";
const NOT_FAILED: &str = "its reward is valid, and only failed trials are chosen";
const NO_WORK: &str = "it failed before its tests, so there is nothing to verify";
const CONTAINER_GONE: &str = "has tests that run in the agent's container, which is gone. Either the job keeps its containers \
                              (`delete: false` under `environment`), or the tests run on artifacts: set environment_mode = \
                              \"separate\" under [verifier] in task.toml, for artifacts that were collected";

/// Decides for one trial.
pub(super) async fn choose(
    trial: &Recorded,
    tasks: &Tasks,
    failed_only: bool,
    dir: &JobDir,
    host: &Host,
) -> Choice {
    if !tasks.are_chosen(trial) {
        return Choice::Keep(NOT_CHOSEN);
    }
    if !trial.has_work() {
        return Choice::Keep(NO_WORK);
    }
    if failed_only && !trial.has_failed() {
        return Choice::Keep(NOT_FAILED);
    }
    match work(trial, tasks, dir, host).await {
        Ok(work) => Choice::Verify(work),
        Err(why) => Choice::Refuse(why),
    }
}

async fn work(trial: &Recorded, tasks: &Tasks, dir: &JobDir, host: &Host) -> Result<Work, String> {
    let task = tasks.of(trial)?;
    let folder = dir.trial(&trial.name);
    if !task.steps.is_empty() {
        for step in steps(trial, task)? {
            let artifacts = folder.step(&step.name).artifacts();
            let there = Artifacts::new(&step.task.config.artifacts, artifacts).are_all_there();
            there.map_err(|problem| format!("in step {} {problem}", step.name))?;
        }
        return Ok(Work::Artifacts);
    }
    if !trial.steps.is_empty() {
        return Err("has steps, and its task has none".to_owned());
    }
    if task.separate_verifier.is_some() {
        Artifacts::new(&task.config.artifacts, folder.artifacts()).are_all_there()?;
        return Ok(Work::Artifacts);
    }
    let kept = host.kept(&TrialLabel::new(trial.name.as_str())).await;
    let not_found = |error: EnvironmentError| {
        format!("may have a container that cannot be looked for: {}", chain(&error))
    };
    kept.map_err(not_found)?.map(Work::Container).ok_or_else(|| CONTAINER_GONE.to_owned())
}

/// Returns the steps to verify.
///
/// # Errors
/// Returns why the trial cannot be verified, as a predicate.
pub(super) fn steps<'a>(trial: &Recorded, task: &'a Task) -> Result<Vec<&'a Step>, String> {
    let step = |name: &String| {
        let step = task.steps.iter().find(|step| step.name == *name);
        let step = step.ok_or_else(|| format!("has step {name}, and its task has no such step"))?;
        match step.task.separate_verifier {
            Some(_) => Ok(step),
            None => Err(format!(
                "has tests of step {name} that run in the agent's container, and no container has the state after each \
                 step: set environment_mode = \"separate\" under [verifier] in task.toml"
            )),
        }
    };
    let steps = trial.steps.iter().map(step).collect::<Result<Vec<_>, _>>()?;
    if steps.is_empty() { Err("has no step whose agent ended".to_owned()) } else { Ok(steps) }
}
