//! The events of a job as a whole. Those of its trials are in `trial/events.rs`.

use serde::Serialize;
use uuid::Uuid;

use super::{JobReport, RolloutFiles};
use crate::trial::Events;

/// An event of a job. Later versions add fields and rename none.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum JobEvent<'a> {
    /// The job is checked and has started.
    JobStarted {
        job: &'a str,
        job_id: Uuid,
        dir: String,
        /// The number of samples of all tasks together.
        trials: usize,
        /// The number of these that ended in an earlier run.
        finished_before: usize,
    },
    JobEnded {
        dir: String,
        trials: usize,
        planned: usize,
        /// Whether the exit code is 0.
        clean: bool,
        rollouts: Option<&'a RolloutFiles>,
        problems: &'a [String],
    },
}

impl Events {
    pub(super) fn job_ended(&self, report: &JobReport) {
        self.write(JobEvent::JobEnded {
            dir: report.dir.path().display().to_string(),
            trials: report.trials.len(),
            planned: report.planned,
            clean: report.is_clean(),
            rollouts: report.rollouts.as_ref(),
            problems: &report.problems,
        });
    }
}
