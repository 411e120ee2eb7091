//! Harbor's `JobConfig`, as far as rolltap honours it.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::parts::{AgentEntry, EnvironmentSection, VerifierSection};
use crate::task::Artifact;

use crate::trial::RetryConfig;

/// Harbor's `JobConfig`. What is absent may come from a flag, and is Harbor's default otherwise.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobConfig {
    /// The job's name and that of its directory.
    pub job_name: Option<String>,
    /// Where job directories lie.
    pub jobs_dir: Option<PathBuf>,
    /// Samples of each task by each agent.
    pub n_attempts: Option<NonZeroU32>,
    /// Trials at once.
    pub n_concurrent_trials: Option<NonZeroUsize>,
    /// No progress while trials run.
    pub quiet: bool,
    /// Of every time limit whose phase has no multiplier of its own.
    pub timeout_multiplier: Option<f64>,
    /// Of the agent's time.
    pub agent_timeout_multiplier: Option<f64>,
    /// Of the tests' time.
    pub verifier_timeout_multiplier: Option<f64>,
    /// Of the time that getting the agent ready may take.
    pub agent_setup_timeout_multiplier: Option<f64>,
    /// Of the time that building and starting an environment may take.
    pub environment_build_timeout_multiplier: Option<f64>,
    /// Which failed trials get another attempt.
    pub retry: RetryConfig,
    /// Where trials run.
    pub environment: EnvironmentSection,
    /// How they are judged.
    pub verifier: VerifierSection,
    /// What is made of all rewards together.
    pub metrics: Vec<MetricConfig>,
    /// Who works; none for Harbor's default, the oracle.
    pub agents: Option<Vec<AgentEntry>>,
    /// Directories of tasks.
    pub datasets: Vec<DatasetRef>,
    /// Single tasks.
    pub tasks: Vec<TaskRef>,
    /// Files to keep besides those that tasks name.
    pub artifacts: Vec<Artifact>,
    /// Files whose text is added to every instruction.
    pub extra_instruction_paths: Vec<PathBuf>,
    /// Text that is added to every instruction, after that of files.
    pub extra_instructions: Vec<String>,
}

/// What is made of all rewards of an agent on a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetricConfig {
    /// Which one.
    #[serde(rename = "type")]
    pub metric: Metric,
}

/// Harbor's metrics, but for those that are scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// All rewards together.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The mean, a missing reward being 0.
    #[default]
    Mean,
}

/// A directory of tasks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DatasetRef {
    /// The directory.
    pub path: Option<PathBuf>,
    /// Shell patterns of which a task's directory must match one.
    pub task_names: Option<Vec<String>>,
    /// Shell patterns of which it must match none.
    pub exclude_task_names: Option<Vec<String>>,
    /// At most so many of what is left, in order of their names.
    pub n_tasks: Option<usize>,
}

/// A single task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskRef {
    /// The task's directory, seen from the repository's root for one from git.
    pub path: Option<PathBuf>,
    /// The repository that it is in; none for this host.
    pub git_url: Option<String>,
    /// The version; none for the repository's newest.
    pub git_commit_id: Option<String>,
    /// Fetch it though it is in the cache.
    pub overwrite: bool,
    /// The cache.
    pub download_dir: Option<PathBuf>,
    /// The dataset that it counts to.
    pub source: Option<String>,
}

impl JobConfig {
    /// Harbor's rules for values that are well-formed by themselves.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key: String, problem: &str| ConfigError::Value { key, problem: problem.to_owned() };
        for (at, dataset) in self.datasets.iter().enumerate() {
            if dataset.path.is_none() {
                return Err(wrong(format!("datasets[{at}]"), "expected `path`, a directory of tasks"));
            }
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
            let Some(group) = &agent.concurrency_group else { continue };
            if agent.n_concurrent.is_none() {
                return Err(wrong("concurrency_group", "needs n_concurrent beside it".to_owned()));
            }
            let shared = groups.entry(group).or_insert(agent.n_concurrent);
            if *shared != agent.n_concurrent {
                let problem = format!("agents of concurrency_group {group:?} must have the same");
                return Err(wrong("n_concurrent", problem));
            }
        }
        Ok(())
    }
}
