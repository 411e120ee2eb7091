//! Which failed trials get another attempt, and when: Harbor's rule, and one of ours.

use std::time::Duration;

use super::config::RetryConfig;
use crate::trial::TrialOutcome;

impl RetryConfig {
    /// How long to wait before another attempt; none for no other attempt. `retries` is how many there were.
    ///
    /// As in Harbor, a failure of one step of a task is not one of the trial. What the agent did to itself is never tried again, whatever the lists say: it would make the policy look better than
    /// it is. Nor is what the user stopped.
    pub(crate) fn wait(&self, outcome: &TrialOutcome, retries: u32) -> Option<Duration> {
        let failure = outcome.exception()?;
        if retries >= self.max_retries || failure.is_agents_fault || outcome.is_cancelled() {
            return None;
        }
        let name = failure.cause.name();
        let excluded = self.exclude_exceptions.as_ref().is_some_and(|names| names.contains(name));
        // In Harbor an empty list includes all, too.
        let included =
            self.include_exceptions.as_ref().is_none_or(|names| names.is_empty() || names.contains(name));
        (included && !excluded).then(|| self.backoff(retries))
    }

    fn backoff(&self, retries: u32) -> Duration {
        let factor = self.wait_multiplier.powi(i32::try_from(retries).unwrap_or(i32::MAX));
        let seconds = (self.min_wait_sec * factor).min(self.max_wait_sec);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_by_the_multiplier_up_to_the_maximum() {
        let config = RetryConfig { wait_multiplier: 2.0, max_wait_sec: 5.0, ..RetryConfig::default() };
        let waits = [0, 1, 2, 3, u32::MAX].map(|retries| config.backoff(retries).as_secs());
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        assert_eq!(RetryConfig::default().backoff(7).as_secs(), 1, "Harbor's default is constant");
    }
}
