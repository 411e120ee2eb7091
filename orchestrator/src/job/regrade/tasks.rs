//! The tasks whose tests verify the trials of a job again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::recorded::Recorded;
use super::{RegradeError, RegradeSettings};
use crate::job::config::{JobConfig, JobFile};
use crate::job::tasks::{self, fnmatch};
use crate::job::{JobError, tasks::JobTask};
use crate::task::{MissingVariables, Runner, Task, TaskFiles, UsedTables};
use crate::trial::{TaskOverrides, TrialExtras};

/// The tasks whose tests verify the trials, by name.
pub(super) struct Tasks {
    by_name: BTreeMap<String, Vec<LoadedTask>>,
    patterns: Vec<String>,
}

/// A task with the job's additions.
struct LoadedTask {
    task: Arc<Task>,
    dataset: Option<String>,
    digest: String,
}

impl Tasks {
    /// Loads the tasks of the settings, or else those of the job, and applies the job's additions to them.
    pub(super) async fn load(
        settings: &RegradeSettings,
        file: &JobFile,
        overrides: &TaskOverrides,
        extras: &TrialExtras,
    ) -> Result<Self, RegradeError> {
        let found = if settings.paths.is_empty() {
            tasks::find(&file.job, Runner::Rolltap).await?
        } else {
            let mut other = JobConfig::default();
            for path in &settings.paths {
                tasks::at_path(&mut other, path)?;
            }
            tasks::find(&other, Runner::Rolltap).await?
        };
        if !found.unusable.is_empty() {
            return Err(RegradeError::Unusable(found.unusable));
        }
        // No agent runs, so only the tests read variables of this host.
        let used = UsedTables { solution: false, verifier: true, mcp_servers: false };
        let mut missing = Vec::new();
        let mut by_name: BTreeMap<String, Vec<LoadedTask>> = BTreeMap::new();
        for JobTask { mut task, source, .. } in found.tasks {
            let failed = |source| JobError::TaskFiles { dir: task.dir.clone(), source };
            let digest = TaskFiles::read(&task.dir).map_err(failed)?.checksum().to_owned();
            overrides.apply(&mut task)?;
            missing.extend(task.resolve(used).err().into_iter().flatten());
            let task = Arc::new(extras.applied_to(&task));
            by_name.entry(task.name.clone()).or_default().push(LoadedTask { task, dataset: source, digest });
        }
        MissingVariables::check(missing).map_err(JobError::from)?;
        Ok(Self { by_name, patterns: settings.tasks.clone() })
    }

    /// Returns the task of a trial.
    ///
    /// # Errors
    /// Returns why there is none, as a predicate of the trial.
    pub(super) fn of(&self, trial: &Recorded) -> Result<&Arc<Task>, String> {
        let named = self.by_name.get(&trial.task).map(Vec::as_slice).unwrap_or_default();
        match (named, named.iter().find(|loaded| loaded.dataset == trial.source)) {
            // A name that two datasets share needs the dataset too.
            ([only], _) | (_, Some(only)) => Ok(&only.task),
            ([], None) => Err(format!("is of task {}, which is not among the tasks", trial.task)),
            (_, None) => Err(format!("is of task {}, and several of the tasks have this name", trial.task)),
        }
    }

    /// Returns whether the settings choose the task of a trial.
    pub(super) fn are_chosen(&self, trial: &Recorded) -> bool {
        let short = trial.task.rsplit('/').next().unwrap_or_default();
        let fits = |pattern: &String| {
            [trial.task.as_str(), short].iter().any(|name| fnmatch::matches(pattern, name))
        };
        self.patterns.is_empty() || self.patterns.iter().any(fits)
    }

    /// Checks that the settings choose the task of at least one trial.
    pub(super) fn check(&self, trials: &[Recorded]) -> Result<(), RegradeError> {
        if trials.iter().any(|trial| self.are_chosen(trial)) {
            return Ok(());
        }
        let names: BTreeSet<_> = trials.iter().map(|trial| trial.task.clone()).collect();
        Err(RegradeError::NoMatch { patterns: self.patterns.clone(), names: names.into_iter().collect() })
    }

    /// Returns the versions of the tasks of these trials, for the record.
    pub(super) fn record(&self, trials: &[Recorded]) -> Value {
        let names: BTreeSet<_> = trials.iter().map(|trial| trial.task.as_str()).collect();
        let of_trials = self.by_name.iter().filter(|(name, _)| names.contains(name.as_str()));
        let entry = |(name, loaded): (&String, &LoadedTask)| {
            let path: &PathBuf = &loaded.task.dir;
            json!({"name": name, "source": loaded.dataset, "path": path, "digest": format!("sha256:{}", loaded.digest)})
        };
        of_trials.flat_map(|(name, all)| all.iter().map(move |loaded| (name, loaded))).map(entry).collect()
    }
}
