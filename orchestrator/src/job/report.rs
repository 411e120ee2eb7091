//! The result of a job.

use std::time::Duration;

use super::RolloutFiles;
use crate::job_dir::JobDir;
use crate::trial::TrialOutcome;

/// The result of a job.
#[derive(Debug)]
pub struct JobReport {
    /// The job directory.
    pub dir: JobDir,
    /// The last attempt at each sample that ended, in the order of tasks and samples.
    pub trials: Vec<TrialOutcome>,
    /// The number of planned trials. Fewer ran if the job was cancelled.
    pub planned: usize,
    /// The time of this run of the job, from the start of its first trial to the end of its clean-up.
    pub took: Duration,
    /// The files with the rollouts. `None` if they could not be written.
    pub rollouts: Option<RolloutFiles>,
    /// Problems of the job as a whole.
    pub problems: Vec<String>,
}

impl JobReport {
    /// Returns whether all trials ran, without a problem or a failure other than the agent's own.
    pub fn is_clean(&self) -> bool {
        self.trials.len() == self.planned
            && self.problems.is_empty()
            && !self.trials.iter().any(TrialOutcome::failed_through_no_fault_of_the_agent)
    }
}
