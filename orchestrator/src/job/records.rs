//! The JSON files of a job directory: Harbor's `JobConfig`, `JobResult`, `TrialConfig` and `TrialResult`, so that
//! Harbor's own readers accept them. Values without a field in Harbor are under `rolltap`.

mod config;
pub(in crate::job) mod statistics;

pub(crate) use config::JobVersions;
use jiff::Timestamp;
use rolltap_proxy::api::TrialStatus;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::job::JobSettings;
use crate::job::config::Metric;
use crate::job_dir::JobDir;
use crate::trial::records::{self, TrialRecords};
use crate::trial::{TrialOutcome, TrialPlan};

/// The values that all records of a job share.
#[derive(Debug)]
pub(crate) struct Records {
    trials: TrialRecords,
    job_name: String,
    /// Harbor's `JobConfig`.
    job: Value,
    metrics: Vec<Metric>,
}

/// The progress of a job.
pub(crate) struct JobProgress<'a> {
    pub(crate) started_at: Timestamp,
    /// `None` while the job runs.
    pub(crate) finished_at: Option<Timestamp>,
    /// The number of samples of all tasks together.
    pub(crate) planned: usize,
    pub(crate) running: usize,
    /// The number of failed attempts that another attempt followed, over all runs of the job.
    pub(crate) retries: u64,
    /// The last attempt at each sample that ended.
    pub(crate) trials: &'a [TrialOutcome],
}

impl Records {
    /// Creates the records of a job. Each group is represented by its first trial.
    pub(crate) fn new(
        job_id: Uuid,
        job_name: &str,
        settings: &JobSettings,
        groups: &[TrialPlan],
        dir: &JobDir,
    ) -> Self {
        let shared = config::shared(settings);
        // The first agent's groups cover all tasks, because every agent works at every task.
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
            ("agents", settings.agents.iter().map(records::agent).collect()),
            ("tasks", tasks.map(records::task).collect()),
            ("rolltap", config::own(job_id, settings)),
        ] {
            job.insert(key.to_owned(), value);
        }
        Self {
            trials: TrialRecords {
                job_id,
                job_dir: dir.path().display().to_string(),
                shared,
                on_workers: settings.cluster.is_some(),
            },
            job_name: job_name.to_owned(),
            job: Value::Object(job),
            metrics: settings.metrics.clone(),
        }
    }

    /// Creates the records of a service, whose tasks come later.
    pub(crate) fn of_service(job_id: Uuid, job_name: &str, settings: &JobSettings, dir: &JobDir) -> Self {
        let mut records = Self::new(job_id, job_name, settings, &[], dir);
        if let Some(Value::Object(own)) = records.job.get_mut("rolltap") {
            own.insert("service".to_owned(), json!(true));
        }
        records
    }

    /// Returns the records of the job's trials.
    pub(crate) fn trials(&self) -> &TrialRecords {
        &self.trials
    }

    pub(crate) fn job_id(&self) -> Uuid {
        self.trials.job_id
    }

    pub(crate) fn job_name(&self) -> &str {
        &self.job_name
    }

    /// Returns the job's `JobConfig`.
    pub(crate) fn job_config(&self) -> &Value {
        &self.job
    }

    /// Returns the job's `JobLock`.
    pub(crate) fn versions(&self, groups: &[TrialPlan]) -> JobVersions {
        config::versions(&self.trials.shared, &self.job, groups)
    }

    /// Returns the job's `JobResult`.
    pub(crate) fn job_result(&self, standing: &JobProgress<'_>) -> Value {
        let JobProgress { started_at, finished_at, planned, running, retries, trials } = standing;
        let sum = |of: fn(&TrialStatus) -> u64| {
            trials.iter().filter_map(|trial| trial.status.as_ref()).map(of).sum()
        };
        let (n_input, n_output): (u64, u64) =
            (sum(|status| status.prompt_tokens), sum(|s| s.completion_tokens));
        json!({
            "id": self.trials.job_id,
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
            "rolltap": {"suspicious": statistics::suspicious(trials)},
        })
    }
}
