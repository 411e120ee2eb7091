//! Finds tasks whose files changed while their job ran. The samples of such a task had different tasks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::checksum;
use crate::trial::TrialPlan;

/// The versions of the tasks at the start of a job: a hash over the files of each task directory.
pub(super) struct TaskVersions(BTreeMap<PathBuf, String>);

impl TaskVersions {
    /// Takes the job's groups, each represented by its first trial.
    pub(super) fn of(groups: &[TrialPlan]) -> Self {
        let version = |plan: &TrialPlan| (plan.task.dir.clone(), plan.task_checksum.clone());
        Self(groups.iter().map(version).collect())
    }

    /// Returns a problem for each task that is not as it was.
    pub(super) fn changed(&self) -> Vec<String> {
        let changed = self.0.iter().filter_map(|(dir, before)| {
            let now = checksum::of_dir(dir);
            let how = match &now {
                Ok(now) if now == before => return None,
                Ok(_) => "its files changed".to_owned(),
                Err(error) => format!("its files cannot be read any more: {error}"),
            };
            Some(format!(
                "task {}: {how} while the job ran, so its rewards may be those of different tasks",
                dir.display()
            ))
        });
        changed.collect()
    }
}
