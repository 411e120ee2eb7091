//! The JSON files of a trial's directory: Harbor's `TrialConfig`, `TrialLock` and `TrialResult`. Fields that Harbor
//! does not have are under `rolltap`.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{StepOutcome, TrialOutcome, TrialPlan};
use crate::common::secret_env::without_secrets;
use crate::failure::TrialFailure;
use crate::task::Task;
use crate::trial::JobAgent;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) type JsonFields = Map<String, Value>;

/// The values that the records of a job's trials share.
#[derive(Clone, Debug)]
pub(crate) struct TrialRecords {
    pub(crate) job_id: Uuid,
    pub(crate) job_dir: String,
    /// The keys that `JobConfig` and `TrialConfig` share.
    pub(crate) shared: JsonFields,
    /// Whether workers run the trials.
    pub(crate) on_workers: bool,
}

impl TrialRecords {
    /// Returns the trial's `TrialLock`.
    pub(crate) fn trial_version(&self, plan: &TrialPlan) -> Value {
        trial_version(&self.shared, plan)
    }

    /// Returns the trial's `TrialConfig`.
    pub(crate) fn trial_config(&self, plan: &TrialPlan) -> Value {
        let mut trial = self.shared.clone();
        for (key, value) in [
            ("task", task(plan)),
            ("trial_name", json!(plan.name)),
            ("trials_dir", json!(self.job_dir)),
            ("agent", agent(&plan.agent)),
            ("job_id", json!(self.job_id)),
            (
                "rolltap",
                json!({
                    "group_id": plan.group_id,
                    "group_size": plan.group_size,
                    "sample_index": plan.sample_index,
                    "attempt": plan.attempt,
                    "reward": plan.reward_rule,
                    "on_workers": self.on_workers,
                }),
            ),
        ] {
            trial.insert(key.to_owned(), value);
        }
        Value::Object(trial)
    }

    /// Gives the result of a worker the paths of this host, and the name of the worker.
    pub(crate) fn adopt(&self, plan: &TrialPlan, worker: &str, result: &mut Value) {
        let Some(fields) = result.as_object_mut() else { return };
        fields.insert("trial_uri".to_owned(), json!(self.trial_uri(plan)));
        fields.insert("task_id".to_owned(), task_id(plan));
        fields.insert("config".to_owned(), self.trial_config(plan));
        if let Some(own) = fields.get_mut("rolltap").and_then(Value::as_object_mut) {
            own.insert("worker".to_owned(), json!(worker));
        }
    }

    fn trial_uri(&self, plan: &TrialPlan) -> String {
        format!("file://{}/{}", self.job_dir, plan.name)
    }

    /// Returns the trial's `TrialResult`.
    pub(crate) fn trial_result(&self, plan: &TrialPlan, outcome: &TrialOutcome) -> Value {
        let model = plan.agent.model.as_ref().map(|name| json!({"name": name, "provider": null}));
        // A verdict without a number is an empty object. Without a verdict the value is null.
        let rewards = outcome.judged.then(|| json!({"rewards": outcome.rewards}));
        json!({
            "id": plan.id,
            "task_name": plan.task.name,
            "trial_name": plan.name,
            "trial_uri": self.trial_uri(plan),
            "task_id": task_id(plan),
            "source": plan.source,
            "task_checksum": plan.task_files.checksum(),
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
                "suspicious": outcome.suspicious,
                "verifier_truncated": outcome.verifier_truncated,
                "failure": outcome.failure,
                "awaits_retry": outcome.awaits_retry,
                "proxy": outcome.status,
                "returned": outcome.returned,
            },
        })
    }
}

/// Returns an agent's `AgentConfig`.
pub(crate) fn agent(agent: &JobAgent) -> Value {
    let mut kwargs = match serde_json::to_value(&agent.spec) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    // The name is a key of its own in `AgentConfig`.
    kwargs.remove("name");
    let limit = agent.limit.as_ref();
    object([
        ("name", json!(agent.asked)),
        ("model_name", json!(agent.model)),
        ("kwargs", Value::Object(kwargs)),
        ("mcp_servers", json!(Some(&agent.mcp_servers).filter(|servers| !servers.is_empty()))),
        ("skills", json!(skills(agent))),
        ("env", json!(without_secrets(&agent.env))),
        ("override_timeout_sec", json!(agent.timeouts.override_sec)),
        ("max_timeout_sec", json!(agent.timeouts.max_sec)),
        ("override_setup_timeout_sec", json!(agent.timeouts.override_setup_sec)),
        ("n_concurrent", json!(limit.map(|limit| limit.trials))),
        ("concurrency_group", json!(limit.and_then(|limit| limit.group.as_ref()))),
    ])
}

fn skills(agent: &JobAgent) -> Option<Vec<&Path>> {
    Some(agent.skills.iter().map(|skill| skill.dir.as_path()).collect())
        .filter(|skills: &Vec<_>| !skills.is_empty())
}

/// Returns a task's `TaskConfig`.
pub(crate) fn task(plan: &TrialPlan) -> Value {
    Value::Object(task_fields(plan))
}

fn task_fields(plan: &TrialPlan) -> JsonFields {
    let git = plan.git.as_ref();
    said([
        ("git_url", json!(git.map(|git| &git.url))),
        ("git_commit_id", json!(git.map(|git| &git.commit))),
        ("path", json!(git.map_or(&plan.task.dir, |git| &git.path))),
        ("source", json!(plan.source)),
    ])
}

/// Returns the `TrialLock`, which identifies the version of the task.
pub(crate) fn trial_version(settings: &JsonFields, plan: &TrialPlan) -> Value {
    let mut trial = settings.clone();
    // These keys belong to `TrialConfig` only.
    trial.remove("extra_instructions");
    trial.remove("artifacts");
    let mut task = task_fields(plan);
    task.extend(said([
        ("name", json!(plan.task.name)),
        ("type", json!(if plan.git.is_some() { "git" } else { "local" })),
        ("digest", json!(format!("sha256:{}", plan.task_files.checksum()))),
    ]));
    trial.insert("schema_version".to_owned(), json!(2));
    trial.insert("task".to_owned(), Value::Object(task));
    trial.insert("agent".to_owned(), agent(&plan.agent));
    Value::Object(trial)
}

/// Returns the `LocalTaskId` or `GitTaskId`.
fn task_id(plan: &TrialPlan) -> Value {
    match &plan.git {
        Some(git) => json!({"git_url": git.url, "git_commit_id": git.commit, "path": git.path}),
        None => json!({"path": plan.task.dir}),
    }
}

/// Returns the `AgentContext`.
fn agent_result(outcome: &TrialOutcome) -> Option<Value> {
    let status = outcome.status.as_ref()?;
    Some(json!({
        "n_input_tokens": status.prompt_tokens,
        "n_output_tokens": status.completion_tokens,
        "metadata": outcome.agent_metadata,
    }))
}

/// Returns the `ExceptionInfo`.
fn exception_info(failure: Option<&TrialFailure>, occurred_at: Timestamp) -> Option<Value> {
    let failure = failure?;
    Some(json!({
        "exception_type": failure.cause,
        "exception_message": failure.message,
        "exception_traceback": format!("phase {}", failure.phase),
        "occurred_at": occurred_at,
    }))
}

/// Returns the verifier's mode. In Harbor only tasks without steps have one.
fn verifier_mode(task: &Task) -> Option<&'static str> {
    let mode = if task.separate_verifier.is_some() { "separate" } else { "shared" };
    task.steps.is_empty().then_some(mode)
}

/// Returns a `StepResult` for each step that began. Tokens are counted for the whole trial only.
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

/// Returns the fields whose values are neither null nor an empty object.
pub(crate) fn said<const N: usize>(fields: [(&str, Value); N]) -> JsonFields {
    let is_said =
        |value: &Value| !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty());
    let said = fields.into_iter().filter(|(_, value)| is_said(value));
    said.map(|(key, value)| (key.to_owned(), value)).collect()
}

pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(said(fields))
}
