//! The part of Harbor's `JobConfig` that rolltap honours.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::dataset::DatasetRef;
use super::parts::{AgentEntry, EnvironmentSection, VerifierSection};
use crate::task::Artifact;

use crate::trial::RetryConfig;

/// Harbor's `JobConfig`. A flag may supply an absent value. Otherwise Harbor's default holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobConfig {
    /// The name of the job and of its directory.
    pub job_name: Option<String>,
    /// The directory that contains the job directories.
    pub jobs_dir: Option<PathBuf>,
    /// The number of samples of each task by each agent.
    pub n_attempts: Option<NonZeroU32>,
    /// The number of trials that run at once.
    pub n_concurrent_trials: Option<NonZeroUsize>,
    /// Whether to hide the progress while trials run.
    pub quiet: bool,
    /// Multiplies every time limit whose phase has no multiplier of its own.
    pub timeout_multiplier: Option<f64>,
    /// Multiplies the time limit of the agent.
    pub agent_timeout_multiplier: Option<f64>,
    /// Multiplies the time limit of the tests.
    pub verifier_timeout_multiplier: Option<f64>,
    /// Multiplies the time limit for the setup of the agent.
    pub agent_setup_timeout_multiplier: Option<f64>,
    /// Multiplies the time limit for building and starting an environment.
    pub environment_build_timeout_multiplier: Option<f64>,
    /// Which failed trials get another attempt.
    pub retry: RetryConfig,
    /// The environment in which trials run.
    pub environment: EnvironmentSection,
    /// How trials are verified.
    pub verifier: VerifierSection,
    /// The metrics over all rewards.
    pub metrics: Vec<MetricConfig>,
    /// The agents. `None` for Harbor's default, the oracle.
    pub agents: Option<Vec<AgentEntry>>,
    /// Sets of tasks.
    pub datasets: Vec<DatasetRef>,
    /// Single tasks.
    pub tasks: Vec<TaskRef>,
    /// Files to collect in addition to those that tasks name.
    pub artifacts: Vec<Artifact>,
    /// Files whose text is appended to every instruction.
    pub extra_instruction_paths: Vec<PathBuf>,
    /// Text that is appended to every instruction, after the text of `extra_instruction_paths`.
    pub extra_instructions: Vec<String>,
}

/// A metric over all rewards of an agent on a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetricConfig {
    /// The kind of the metric.
    #[serde(rename = "type")]
    pub metric: Metric,
}

/// Harbor's metrics, except for those that are scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// The sum of the rewards.
    Sum,
    /// The smallest reward.
    Min,
    /// The greatest reward.
    Max,
    /// The mean. A missing reward counts as 0.
    #[default]
    Mean,
}

/// A single task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskRef {
    /// The task's directory. For a task from git it is relative to the root of the repository.
    pub path: Option<PathBuf>,
    /// The repository of the task. `None` for a task of this host.
    pub git_url: Option<String>,
    /// The commit. `None` for the newest commit of the repository.
    pub git_commit_id: Option<String>,
    /// Whether to fetch the task even if it is in the cache.
    pub overwrite: bool,
    /// The directory of the cache.
    pub download_dir: Option<PathBuf>,
    /// The dataset that the task belongs to.
    pub source: Option<String>,
}

impl JobConfig {
    /// Checks Harbor's rules for values that have the right type but an invalid value.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key: String, problem: &str| ConfigError::Value { key, problem: problem.to_owned() };
        for (at, dataset) in self.datasets.iter().enumerate() {
            dataset.place().map_err(|problem| wrong(format!("datasets[{at}]"), &problem))?;
        }
        for (at, task) in self.tasks.iter().enumerate() {
            if task.path.is_none() {
                return Err(wrong(format!("tasks[{at}]"), "expected `path`, a task's directory"));
            }
            if task.git_commit_id.is_some() && task.git_url.is_none() {
                return Err(wrong(format!("tasks[{at}].git_commit_id"), "needs `git_url` beside it"));
            }
        }
        let waits = [
            ("retry.wait_multiplier", self.retry.wait_multiplier),
            ("retry.min_wait_sec", self.retry.min_wait_sec),
            ("retry.max_wait_sec", self.retry.max_wait_sec),
        ];
        if let Some((key, _)) = waits.iter().find(|(_, value)| !(0.0..=1e9).contains(value)) {
            return Err(wrong((*key).to_owned(), "expected a number from 0 to 1000000000"));
        }
        self.check_agents()
    }

    fn check_agents(&self) -> Result<(), ConfigError> {
        let at_once = self.n_concurrent_trials.map_or(super::settings::CONCURRENCY, NonZeroUsize::get);
        let mut groups: BTreeMap<&str, Option<NonZeroUsize>> = BTreeMap::new();
        for (at, agent) in self.agents.iter().flatten().enumerate() {
            let wrong = |key: &str, problem: String| ConfigError::Value {
                key: format!("agents[{at}].{key}"),
                problem,
            };
            if let Some(limit) = agent.n_concurrent.filter(|limit| limit.get() > at_once) {
                let problem = format!("{limit} is more than n_concurrent_trials, {at_once}");
                return Err(wrong("n_concurrent", problem));
            }
            // The rest concerns only agents that share a limit.
            let Some(group) = &agent.concurrency_group else { continue };
            if agent.n_concurrent.is_none() {
                return Err(wrong("concurrency_group", "needs n_concurrent beside it".to_owned()));
            }
            // The first agent of a group sets its limit.
            let shared = groups.entry(group).or_insert(agent.n_concurrent);
            if *shared != agent.n_concurrent {
                let problem = format!("agents of concurrency_group {group:?} must have the same");
                return Err(wrong("n_concurrent", problem));
            }
        }
        Ok(())
    }
}
