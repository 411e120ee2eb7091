//! The figures of a running job, or of one of its tasks.

use std::time::Instant;

use super::token_rate::TokenRate;
use crate::trial::TrialOutcome;

/// The figures of trials.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// The number of samples that ended, those of earlier runs included.
    pub(super) done: usize,
    /// The number of these that failed.
    pub(super) failed: usize,
    /// The sum and the number of the valid rewards.
    pub(super) rewards: (f64, usize),
    tokens: TokenRate,
}

impl Figures {
    /// Counts the last attempt of a sample.
    pub(super) fn count(&mut self, outcome: &TrialOutcome) {
        self.done += 1;
        self.failed += usize::from(outcome.failure.is_some());
        if let Some(reward) = outcome.reward.filter(|_| outcome.reward_is_valid()) {
            self.rewards.0 += reward;
            self.rewards.1 += 1;
        }
    }

    /// Counts sampled tokens of a running trial.
    pub(super) fn sampled(&mut self, tokens: u64, now: Instant) {
        self.tokens.add(tokens, now);
    }

    /// Returns the mean of all valid rewards, or `None` if there are none.
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
