//! What came of a job.

use super::RolloutFiles;
use crate::job_dir::JobDir;
use crate::trial::TrialOutcome;

/// What came of a job.
#[derive(Debug)]
pub struct JobReport {
    /// Where everything lies.
    pub dir: JobDir,
    /// The trials that ran, in the order of tasks and samples.
    pub trials: Vec<TrialOutcome>,
    /// How many trials were planned; fewer ran if the job was cancelled.
    pub planned: usize,
    /// The files that the rollouts were written to; none if they could not be.
    pub rollouts: Option<RolloutFiles>,
    /// What went wrong beside the trials.
    pub problems: Vec<String>,
}

impl JobReport {
    /// Whether everything ran, and whatever failed was the agent's own failure.
    pub fn is_clean(&self) -> bool {
        self.trials.len() == self.planned
            && self.problems.is_empty()
            && !self.trials.iter().any(TrialOutcome::failed_through_no_fault_of_the_agent)
    }
}
