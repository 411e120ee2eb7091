//! The figures of each task of a running job.

use std::collections::BTreeMap;
use std::time::Instant;

use super::figures::Figures;
use crate::trial::TrialOutcome;

/// The tasks of which a trial has begun or ended, by name.
#[derive(Debug, Default)]
pub(super) struct Tasks(BTreeMap<String, TaskFigures>);

/// The figures of one task.
#[derive(Debug, Default)]
pub(super) struct TaskFigures {
    /// The number of trials that run.
    pub(super) running: usize,
    pub(super) figures: Figures,
}

impl Tasks {
    /// Counts a trial that begins.
    pub(super) fn begin(&mut self, task: &str) {
        self.of(task).running += 1;
    }

    /// Counts sampled tokens of a running trial.
    pub(super) fn sampled(&mut self, task: &str, tokens: u64, now: Instant) {
        self.of(task).figures.sampled(tokens, now);
    }

    /// Counts an attempt that was running.
    pub(super) fn end(&mut self, task: &str) {
        let task = self.of(task);
        task.running = task.running.saturating_sub(1);
    }

    /// Counts the last attempt of a sample.
    pub(super) fn count(&mut self, outcome: &TrialOutcome) {
        self.of(&outcome.task_name).figures.count(outcome);
    }

    fn of(&mut self, task: &str) -> &mut TaskFigures {
        self.0.entry(task.to_owned()).or_default()
    }

    /// Returns the tasks with their names: those with running trials first, each part sorted by name.
    pub(super) fn in_order(&self) -> Vec<(&str, &TaskFigures)> {
        let mut tasks: Vec<_> = self.0.iter().map(|(name, task)| (name.as_str(), task)).collect();
        // The sort is stable, so the names stay sorted.
        tasks.sort_by_key(|(_, task)| task.running == 0);
        tasks
    }
}
