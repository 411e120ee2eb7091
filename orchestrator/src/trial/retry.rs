//! Which failed trials get another attempt, and when: Harbor's rule, and one of ours.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::TrialOutcome;

/// Harbor's `RetryConfig`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryConfig {
    /// Further attempts at a sample.
    pub max_retries: u32,
    /// Failures that get one; none or an empty list for all that are not excluded.
    pub include_exceptions: Option<BTreeSet<String>>,
    /// Failures that get none, whatever is included.
    pub exclude_exceptions: Option<BTreeSet<String>>,
    /// By how much each wait is longer than the one before it.
    pub wait_multiplier: f64,
    /// Seconds before the first retry.
    pub min_wait_sec: f64,
    /// Seconds before a retry, at most.
    pub max_wait_sec: f64,
}

impl Default for RetryConfig {
    fn default() -> Self {
        let excluded = [
            "AgentTimeoutError",
            "VerifierTimeoutError",
            "RewardFileNotFoundError",
            "RewardFileEmptyError",
            "VerifierOutputParseError",
            "ApiUsageLimitError",
            "AgentSafetyRefusalError",
            "AgentAuthenticationError",
            "ModelNotFoundError",
            "UnsupportedModelParametersError",
        ];
        Self {
            max_retries: 0,
            include_exceptions: None,
            exclude_exceptions: Some(excluded.map(str::to_owned).into()),
            wait_multiplier: 1.0,
            min_wait_sec: 1.0,
            max_wait_sec: 60.0,
        }
    }
}

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
