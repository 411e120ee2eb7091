//! The events of a job as a whole; those of its trials are in `trial/events.rs`.

use serde::Serialize;
use uuid::Uuid;

use super::{JobReport, RolloutFiles};
use crate::trial::Events;

/// An event of a job. Later versions add fields and rename none.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum JobEvent<'a> {
    /// Everything is checked and started.
    JobStarted {
        job: &'a str,
        job_id: Uuid,
        dir: String,
        /// Samples of all tasks together.
        trials: usize,
        /// How many of them had ended in an earlier run.
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
