//! Finds tasks whose files changed while their job ran. The samples of such a task had different tasks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::task::TaskFiles;
use crate::trial::TrialPlan;

/// The most changed files that a problem names.
const NAMED: usize = 3;

/// The files of the task directories at the start of a job.
pub(super) struct TaskVersions(BTreeMap<PathBuf, Arc<TaskFiles>>);

impl TaskVersions {
    /// Takes the job's groups, each represented by its first trial.
    pub(super) fn of(groups: &[TrialPlan]) -> Self {
        let version = |plan: &TrialPlan| (plan.task.dir.clone(), Arc::clone(&plan.task_files));
        Self(groups.iter().map(version).collect())
    }

    /// Returns a problem for each task that is not as it was.
    pub(super) fn changed(&self) -> Vec<String> {
        let changed = self.0.iter().filter_map(|(dir, files)| {
            let changes = files.changes();
            let more = changes.len().saturating_sub(NAMED);
            let mut named: Vec<_> = changes.into_iter().take(NAMED).collect();
            if named.is_empty() {
                return None;
            }
            if more > 0 {
                named.push(format!("and {more} more"));
            }
            Some(format!(
                "task {}: its files changed while the job ran ({}), so its rewards may be those of different tasks",
                dir.display(),
                named.join(", ")
            ))
        });
        changed.collect()
    }
}
