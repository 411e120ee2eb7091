//! What the JSON files of a job directory hold: Harbor's `JobConfig`, `JobResult`, `TrialConfig` and `TrialResult`, so
//! that Harbor's own readers work on it. What Harbor has no field for stands under `rolltap`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rolltap_proxy::api::TrialStatus;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::environment::EnvironmentKind;
use crate::job::{JobAgent, JobSettings, ProxyChoice};
use crate::job_dir::JobDir;
use crate::task::Task;
use crate::trial::{Cause, StepOutcome, TimeoutPolicy, TrialFailure, TrialOutcome, TrialPlan};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Harbor's name for a job of tasks that belong to no dataset.
const NO_DATASET: &str = "adhoc";

/// What all records of a job have in common.
#[derive(Debug)]
pub(crate) struct Records {
    job_id: Uuid,
    job_name: String,
    jobs_dir: String,
    job_dir: String,
    /// Harbor's `AgentConfig` of each agent.
    agents: Vec<Value>,
    /// Harbor's `EnvironmentConfig`.
    environment: Value,
    samples: u32,
    concurrency: usize,
    timeouts: TimeoutPolicy,
    /// Settings of ours alone.
    own: Value,
}

impl Records {
    pub(crate) fn new(job_id: Uuid, job_name: &str, settings: &JobSettings, dir: &JobDir) -> Self {
        Self {
            job_id,
            job_name: job_name.to_owned(),
            jobs_dir: dir.path().parent().unwrap_or(dir.path()).display().to_string(),
            job_dir: dir.path().display().to_string(),
            agents: settings.agents.iter().map(agent_config).collect(),
            environment: environment_config(settings.environment),
            samples: settings.samples.get(),
            concurrency: settings.concurrency.get(),
            timeouts: settings.timeouts,
            own: json!({
                "version": VERSION,
                "environment": settings.environment.to_string(),
                "proxy": proxy(&settings.proxy),
                "history": settings.history,
                "sampling": settings.sampling,
            }),
        }
    }

    pub(crate) fn job_name(&self) -> &str {
        &self.job_name
    }

    /// `JobConfig`
    pub(crate) fn job_config(&self, plans: &[TrialPlan]) -> Value {
        // Every agent works at every task.
        let first = plans.first().map(|plan| &plan.agent);
        let first_samples = plans.iter().filter(|plan| plan.sample_index == 0 && Some(&plan.agent) == first);
        json!({
            "job_name": self.job_name,
            "jobs_dir": self.jobs_dir,
            "n_attempts": self.samples,
            "timeout_multiplier": self.timeouts.multiplier,
            "n_concurrent_trials": self.concurrency,
            "environment": self.environment,
            "agents": self.agents,
            "tasks": first_samples.map(task_config).collect::<Vec<_>>(),
            "rolltap": self.own,
        })
    }

    /// `TrialConfig`
    pub(crate) fn trial_config(&self, plan: &TrialPlan) -> Value {
        json!({
            "task": task_config(plan),
            "trial_name": plan.name,
            "trials_dir": self.job_dir,
            "timeout_multiplier": self.timeouts.multiplier,
            "agent": agent_config(&plan.agent),
            "environment": self.environment,
            "job_id": self.job_id,
            "rolltap": {
                "group_id": plan.group_id,
                "group_size": plan.group_size,
                "sample_index": plan.sample_index,
                "attempt": plan.attempt,
            },
        })
    }

    /// `TrialResult`
    pub(crate) fn trial_result(&self, plan: &TrialPlan, outcome: &TrialOutcome) -> Value {
        let model = plan.agent.model.as_ref().map(|name| json!({"name": name, "provider": null}));
        let rewards = (!outcome.rewards.is_empty()).then(|| json!({"rewards": outcome.rewards}));
        json!({
            "id": plan.id,
            "task_name": plan.task.name,
            "trial_name": plan.name,
            "trial_uri": format!("file://{}/{}", self.job_dir, plan.name),
            "task_id": {"path": plan.task.dir},
            "source": null,
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
                "proxy": outcome.status,
                "returned": outcome.returned,
            },
        })
    }

    /// `JobResult`
    pub(crate) fn job_result(
        &self,
        started_at: Timestamp,
        trials: &[TrialOutcome],
        planned: usize,
        finished_at: Option<Timestamp>,
    ) -> Value {
        let cancelled = |trial: &&TrialOutcome| failure_name(trial) == Some(Cause::Cancelled.name());
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
                "n_running_trials": 0,
                "n_pending_trials": planned.saturating_sub(trials.len()),
                "n_cancelled_trials": trials.iter().filter(cancelled).count(),
                "n_retries": 0,
                "n_input_tokens": n_input,
                "n_output_tokens": n_output,
                "evals": evals_by_agent(trials),
            },
        })
    }
}

fn agent_config(agent: &JobAgent) -> Value {
    let mut kwargs = match serde_json::to_value(&agent.spec) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    kwargs.remove("name");
    json!({"name": agent.spec.name(), "model_name": agent.model, "kwargs": kwargs})
}

/// Harbor knows no `local`, and refuses a type that it does not know, so ours stands where third parties name theirs.
fn environment_config(kind: EnvironmentKind) -> Value {
    match kind {
        EnvironmentKind::Docker => json!({"type": "docker"}),
        EnvironmentKind::Local => json!({"type": null, "import_path": "rolltap:local"}),
    }
}

fn proxy(choice: &ProxyChoice) -> Value {
    match choice {
        ProxyChoice::Embedded(upstreams) => {
            let upstreams: Vec<String> = upstreams.addresses.iter().map(ToString::to_string).collect();
            json!({"embedded": true, "upstreams": upstreams})
        }
        ProxyChoice::External { admin_url, .. } => json!({"embedded": false, "admin_url": admin_url}),
    }
}

fn task_config(plan: &TrialPlan) -> Value {
    json!({"path": plan.task.dir})
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

fn failure_name(outcome: &TrialOutcome) -> Option<&'static str> {
    outcome.exception().map(|failure| failure.cause.name())
}

fn evals_by_agent(trials: &[TrialOutcome]) -> BTreeMap<String, Value> {
    let mut by_agent: BTreeMap<String, Vec<&TrialOutcome>> = BTreeMap::new();
    for trial in trials {
        by_agent.entry(evals_key(&trial.agent)).or_default().push(trial);
    }
    by_agent.into_iter().map(|(key, trials)| (key, evals(&trials))).collect()
}

fn evals_key(agent: &JobAgent) -> String {
    let parts = [Some(agent.spec.name()), agent.model.as_deref(), Some(NO_DATASET)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("__")
}

/// `AgentDatasetStats`
fn evals(trials: &[&TrialOutcome]) -> Value {
    let mut rewards: BTreeMap<&str, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
    let mut exceptions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for trial in trials {
        for (name, value) in &trial.rewards {
            rewards.entry(name).or_default().entry(value.to_string()).or_default().push(trial.name.as_str());
        }
        if let Some(name) = failure_name(trial) {
            exceptions.entry(name).or_default().push(trial.name.as_str());
        }
    }
    json!({
        "n_trials": trials.iter().filter(|trial| !trial.rewards.is_empty()).count(),
        "n_errors": trials.iter().filter(|trial| trial.exception().is_some()).count(),
        "metrics": [],
        "reward_stats": rewards,
        "exception_stats": exceptions,
    })
}
