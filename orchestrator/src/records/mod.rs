//! What the JSON files of a job directory hold: Harbor's `JobConfig`, `JobResult`, `TrialConfig` and `TrialResult`, so
//! that Harbor's own readers work on it. What Harbor has no field for stands under `rolltap`.

mod config;
mod statistics;

pub(crate) use config::JobVersions;
use jiff::Timestamp;
use rolltap_proxy::api::TrialStatus;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::job::JobSettings;
use crate::job::config::Metric;
use crate::job_dir::JobDir;
use crate::task::Task;
use crate::trial::{StepOutcome, TrialFailure, TrialOutcome, TrialPlan};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What all records of a job have in common.
#[derive(Debug)]
pub(crate) struct Records {
    job_id: Uuid,
    job_name: String,
    job_dir: String,
    /// The keys of `JobConfig` and `TrialConfig` that are the same in both.
    shared: Map<String, Value>,
    /// `JobConfig`
    job: Value,
    metrics: Vec<Metric>,
}

/// How far a job is.
pub(crate) struct Standing<'a> {
    pub(crate) started_at: Timestamp,
    /// None while it runs.
    pub(crate) finished_at: Option<Timestamp>,
    /// Samples of all tasks together.
    pub(crate) planned: usize,
    pub(crate) running: usize,
    /// Attempts that failed and were followed by another, in all runs of the job.
    pub(crate) retries: u64,
    /// The last attempt at each sample that ended.
    pub(crate) trials: &'a [TrialOutcome],
}

impl Records {
    /// Of a job with these groups, each told by its first trial.
    pub(crate) fn new(
        job_id: Uuid,
        job_name: &str,
        settings: &JobSettings,
        groups: &[TrialPlan],
        dir: &JobDir,
    ) -> Self {
        let shared = config::shared(settings);
        // Every agent works at every task.
        let first = groups.first().map(|plan| &plan.agent);
        let tasks = groups.iter().filter(|plan| Some(&plan.agent) == first);
        let mut job = shared.clone();
        for (key, value) in [
            ("job_name", json!(job_name)),
            ("jobs_dir", json!(dir.path().parent().unwrap_or(dir.path()))),
            ("n_attempts", json!(settings.samples)),
            ("n_concurrent_trials", json!(settings.concurrency)),
            ("retry", json!(settings.retry)),
            (
                "metrics",
                json!(settings.metrics.iter().map(|metric| json!({"type": metric})).collect::<Vec<_>>()),
            ),
            ("agents", settings.agents.iter().map(config::agent).collect()),
            ("tasks", tasks.map(config::task).collect()),
            ("rolltap", config::own(job_id, settings)),
        ] {
            job.insert(key.to_owned(), value);
        }
        Self {
            job_id,
            job_name: job_name.to_owned(),
            job_dir: dir.path().display().to_string(),
            shared,
            job: Value::Object(job),
            metrics: settings.metrics.clone(),
        }
    }

    pub(crate) fn job_id(&self) -> Uuid {
        self.job_id
    }

    pub(crate) fn job_name(&self) -> &str {
        &self.job_name
    }

    /// `JobConfig`
    pub(crate) fn job_config(&self) -> &Value {
        &self.job
    }

    /// `JobLock`
    pub(crate) fn versions(&self, groups: &[TrialPlan]) -> JobVersions {
        config::versions(&self.shared, &self.job, groups)
    }

    /// `TrialLock`
    pub(crate) fn trial_version(&self, plan: &TrialPlan) -> Value {
        config::trial_version(&self.shared, plan)
    }

    /// `TrialConfig`
    pub(crate) fn trial_config(&self, plan: &TrialPlan) -> Value {
        let mut trial = self.shared.clone();
        for (key, value) in [
            ("task", config::task(plan)),
            ("trial_name", json!(plan.name)),
            ("trials_dir", json!(self.job_dir)),
            ("agent", config::agent(&plan.agent)),
            ("job_id", json!(self.job_id)),
            (
                "rolltap",
                json!({
                    "group_id": plan.group_id,
                    "group_size": plan.group_size,
                    "sample_index": plan.sample_index,
                    "attempt": plan.attempt,
                }),
            ),
        ] {
            trial.insert(key.to_owned(), value);
        }
        Value::Object(trial)
    }

    /// `TrialResult`
    pub(crate) fn trial_result(&self, plan: &TrialPlan, outcome: &TrialOutcome) -> Value {
        let model = plan.agent.model.as_ref().map(|name| json!({"name": name, "provider": null}));
        let rewards = outcome.judged.then(|| json!({"rewards": outcome.rewards}));
        json!({
            "id": plan.id,
            "task_name": plan.task.name,
            "trial_name": plan.name,
            "trial_uri": format!("file://{}/{}", self.job_dir, plan.name),
            "task_id": task_id(plan),
            "source": plan.source,
            "task_checksum": plan.task_checksum,
            "config": self.trial_config(plan),
            "agent_info": {"name": plan.agent.spec.name(), "version": VERSION, "model_info": model},
            "agent_result": agent_result(outcome),
            "verifier_result": rewards,
            "exception_info": exception_info(outcome.exception(), outcome.finished_at),
            "started_at": outcome.started_at,
            "finished_at": outcome.finished_at,
            "environment_setup": outcome.environment_setup,
            "agent_setup": outcome.agent_setup,
            "agent_execution": outcome.agent_execution,
            "verifier": outcome.verifier,
            "verifier_environment_mode": verifier_mode(&plan.task),
            "step_results": (!plan.task.steps.is_empty()).then(|| step_results(&outcome.steps)),
            "rolltap": {
                "reward": outcome.reward,
                "reward_valid": outcome.reward_is_valid(),
                "failure": outcome.failure,
                "awaits_retry": outcome.awaits_retry,
                "proxy": outcome.status,
                "returned": outcome.returned,
            },
        })
    }

    /// `JobResult`
    pub(crate) fn job_result(&self, standing: &Standing<'_>) -> Value {
        let Standing { started_at, finished_at, planned, running, retries, trials } = standing;
        let sum = |of: fn(&TrialStatus) -> u64| {
            trials.iter().filter_map(|trial| trial.status.as_ref()).map(of).sum()
        };
        let (n_input, n_output): (u64, u64) =
            (sum(|status| status.prompt_tokens), sum(|s| s.completion_tokens));
        json!({
            "id": self.job_id,
            "started_at": started_at,
            "updated_at": Timestamp::now(),
            "finished_at": finished_at,
            "n_total_trials": planned,
            "stats": {
                "n_completed_trials": trials.len(),
                "n_errored_trials": trials.iter().filter(|trial| trial.exception().is_some()).count(),
                "n_running_trials": running,
                "n_pending_trials": planned.saturating_sub(trials.len() + running),
                "n_cancelled_trials": trials.iter().filter(|trial| trial.is_cancelled()).count(),
                "n_retries": retries,
                "n_input_tokens": n_input,
                "n_output_tokens": n_output,
                "evals": statistics::evals(trials, &self.metrics),
            },
        })
    }
}

/// `LocalTaskId` or `GitTaskId`
fn task_id(plan: &TrialPlan) -> Value {
    match &plan.git {
        Some(git) => json!({"git_url": git.url, "git_commit_id": git.commit, "path": git.path}),
        None => json!({"path": plan.task.dir}),
    }
}

/// `AgentContext`
fn agent_result(outcome: &TrialOutcome) -> Option<Value> {
    let status = outcome.status.as_ref()?;
    Some(json!({
        "n_input_tokens": status.prompt_tokens,
        "n_output_tokens": status.completion_tokens,
        "metadata": outcome.agent_metadata,
    }))
}

/// `ExceptionInfo`
fn exception_info(failure: Option<&TrialFailure>, occurred_at: Timestamp) -> Option<Value> {
    let failure = failure?;
    Some(json!({
        "exception_type": failure.cause,
        "exception_message": failure.message,
        "exception_traceback": format!("phase {}", failure.phase),
        "occurred_at": occurred_at,
    }))
}

/// Harbor tells it of tasks in one go alone.
fn verifier_mode(task: &Task) -> Option<&'static str> {
    let mode = if task.separate_verifier.is_some() { "separate" } else { "shared" };
    task.steps.is_empty().then_some(mode)
}

/// `StepResult`, of each step that was begun. Tokens are counted for the whole trial.
fn step_results(steps: &[StepOutcome]) -> Vec<Value> {
    let result = |StepOutcome { name, round }: &StepOutcome| {
        let ended = round.verifier.or(round.agent_execution).map_or_else(Timestamp::now, |t| t.finished_at);
        json!({
            "step_name": name,
            "agent_result": round.agent_execution.map(|_| json!({"metadata": round.agent_metadata})),
            "verifier_result": round.verdict.as_ref().map(|verdict| json!({"rewards": verdict.rewards})),
            "exception_info": exception_info(round.failure.as_ref(), ended),
            "agent_execution": round.agent_execution,
            "verifier": round.verifier,
        })
    };
    steps.iter().map(result).collect()
}
