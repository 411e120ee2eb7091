//! The figures of each task of a running job.

use std::collections::BTreeMap;
use std::time::Instant;

use super::token_rate::TokenRate;
use crate::trial::TrialOutcome;

/// The figures of the tasks of which a trial has begun or ended, by the name of the task.
#[derive(Debug, Default)]
pub(super) struct Tasks(BTreeMap<String, TaskFigures>);

/// The figures of one task.
#[derive(Debug, Default)]
pub(super) struct TaskFigures {
    /// The number of samples that ended.
    pub(super) done: usize,
    /// The number of trials that run.
    pub(super) running: usize,
    /// The number of ended samples that failed.
    pub(super) failed: usize,
    /// The sum and the number of the valid rewards.
    rewards: (f64, usize),
    tokens: TokenRate,
}

impl Tasks {
    /// Counts a trial that begins.
    pub(super) fn begin(&mut self, task: &str) {
        self.of(task).running += 1;
    }

    /// Counts sampled tokens of a running trial.
    pub(super) fn sampled(&mut self, task: &str, tokens: u64, now: Instant) {
        self.of(task).tokens.add(tokens, now);
    }

    /// Counts an attempt that was running.
    pub(super) fn end(&mut self, task: &str) {
        let figures = self.of(task);
        figures.running = figures.running.saturating_sub(1);
    }

    /// Counts the last attempt of a sample.
    pub(super) fn count(&mut self, outcome: &TrialOutcome) {
        let figures = self.of(&outcome.task_name);
        figures.done += 1;
        figures.failed += usize::from(outcome.failure.is_some());
        if let Some(reward) = outcome.reward.filter(|_| outcome.reward_is_valid()) {
            figures.rewards.0 += reward;
            figures.rewards.1 += 1;
        }
    }

    fn of(&mut self, task: &str) -> &mut TaskFigures {
        self.0.entry(task.to_owned()).or_default()
    }

    /// Returns the tasks with their names: those with running trials first, each part sorted by name.
    pub(super) fn in_order(&self) -> Vec<(&str, &TaskFigures)> {
        let mut tasks: Vec<_> = self.0.iter().map(|(name, figures)| (name.as_str(), figures)).collect();
        // The sort is stable, so the names stay sorted.
        tasks.sort_by_key(|(_, figures)| figures.running == 0);
        tasks
    }
}

impl TaskFigures {
    /// Returns the mean of the valid rewards, or `None` if there are none.
    pub(super) fn mean_reward(&self) -> Option<f64> {
        let (sum, count) = self.rewards;
        (count > 0).then(|| sum / count as f64)
    }

    /// Returns the sampled tokens per second in the last minute, or `None` if none were sampled. `since` is the start of
    /// the job.
    pub(super) fn tokens_per_second(&self, since: Instant, now: Instant) -> Option<f64> {
        self.tokens.per_second(since, now)
    }
}
