//! The gate for authors of tasks: the oracle must solve each task, and doing nothing must not.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use rolltap_rollout::rollout::RewardRule;
use serde::Serialize;

use super::{JobError, JobReport, JobSettings, Progress, ProxyChoice, RewardRules, Upstreams, run_job};
use crate::agents::AgentSpec;
use crate::common::cancellation::Cancellation;
use crate::environment::EnvironmentKind;
use crate::task::Task;
use crate::trial::{JobAgent, TrialOutcome};

/// The settings of a gate.
#[derive(Debug)]
pub struct GateSettings {
    /// Whether the oracle works at each task. Its reward must be 1.
    pub oracle: bool,
    /// Whether nop works at each task. Its reward must be below 1.
    pub nop: bool,
    /// Where the trials run.
    pub environment: EnvironmentKind,
    /// The number of trials that run at once.
    pub concurrency: NonZeroUsize,
    /// The directory that contains the job directories.
    pub jobs_dir: PathBuf,
    /// The job's name. `None` for a name from the time of its start.
    pub job_name: Option<String>,
    /// The rule for the number that the gate compares.
    pub reward: Option<RewardRule>,
}

/// The verdict of the gate about one task and one agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateVerdict {
    /// The directory of the task.
    #[serde(skip)]
    pub dir: PathBuf,
    /// `oracle` or `nop`.
    pub agent: String,
    /// The reward. `None` if there is none.
    pub reward: Option<f64>,
    /// What is wrong, in one line. `None` if the task passes.
    pub problem: Option<String>,
    /// The directory with the logs of the trial.
    pub trial: PathBuf,
}

/// The result of a gate.
#[derive(Debug)]
pub struct GateReport {
    /// A verdict for each task and agent whose trial ended.
    pub verdicts: Vec<GateVerdict>,
    /// The job.
    pub job: JobReport,
}

/// Runs the agents of the gate at these tasks, in one job.
///
/// # Errors
/// Fails if the job cannot start.
pub fn run_gate(
    tasks: Vec<Task>,
    settings: GateSettings,
    progress: Progress,
    cancellation: Cancellation,
) -> BoxFuture<'static, Result<GateReport, JobError>> {
    // Boxed for the reason given at `run_job`.
    Box::pin(run(tasks, settings, progress, cancellation))
}

async fn run(
    tasks: Vec<Task>,
    settings: GateSettings,
    progress: Progress,
    cancellation: Cancellation,
) -> Result<GateReport, JobError> {
    let agents = [(settings.oracle, AgentSpec::Oracle), (settings.nop, AgentSpec::Nop)];
    let agents = agents.into_iter().filter(|(is_chosen, _)| *is_chosen);
    let agents = agents.map(|(_, spec)| JobAgent::new(spec, None)).collect();
    let dirs: Vec<_> = tasks.iter().map(|task| (task.name.clone(), task.dir.clone())).collect();
    let job = JobSettings {
        concurrency: settings.concurrency,
        job_name: settings.job_name,
        reward_rules: RewardRules { all: settings.reward, ..RewardRules::default() },
        preflight: false,
        ..JobSettings::new(
            tasks.into_iter().map(Into::into).collect(),
            agents,
            settings.environment,
            settings.jobs_dir,
            // Neither agent calls a model.
            ProxyChoice::from(Upstreams::default()),
        )
    };
    let job = run_job(job, progress, cancellation).await?;
    let verdict = |(name, dir): &(String, PathBuf)| {
        let of_task = job.trials.iter().filter(|trial| trial.task_name == *name);
        of_task.map(|trial| verdict(trial, dir, &job)).collect::<Vec<_>>()
    };
    let verdicts = dirs.iter().flat_map(verdict).collect();
    Ok(GateReport { verdicts, job })
}

fn verdict(trial: &TrialOutcome, dir: &Path, job: &JobReport) -> GateVerdict {
    let agent = trial.agent.spec.name().to_owned();
    let is_oracle = trial.agent.spec == AgentSpec::Oracle;
    let problem = problem(is_oracle, trial.reward, trial.end_in_words());
    let trial_dir = job.dir.path().join(trial.name.as_str());
    GateVerdict { dir: dir.to_owned(), agent, reward: trial.reward, problem, trial: trial_dir }
}

/// Compares a reward with the expected one. `end` describes the end of a trial without a reward.
fn problem(is_oracle: bool, reward: Option<f64>, end: String) -> Option<String> {
    match (is_oracle, reward) {
        (true, Some(1.0)) => None,
        (false, Some(reward)) if reward < 1.0 => None,
        (true, Some(reward)) => Some(format!("agent oracle has reward {reward}, expected 1")),
        (false, Some(reward)) => Some(format!("agent nop has reward {reward}, expected less than 1")),
        (true, None) => Some(format!("agent oracle {end}; expected reward 1")),
        (false, None) => Some(format!("agent nop {end}; expected a reward below 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_must_pass_and_nop_must_not() {
        let of = |is_oracle, reward| problem(is_oracle, reward, "ended without a reward: why".to_owned());
        assert_eq!((of(true, Some(1.0)), of(false, Some(0.0)), of(false, Some(0.99))), (None, None, None));
        assert_eq!(of(true, Some(0.5)).unwrap(), "agent oracle has reward 0.5, expected 1");
        assert_eq!(of(false, Some(1.0)).unwrap(), "agent nop has reward 1, expected less than 1");
        assert_eq!(of(true, None).unwrap(), "agent oracle ended without a reward: why; expected reward 1");
        assert!(of(false, None).is_some(), "no reward does not show that the tests fail");
    }
}
