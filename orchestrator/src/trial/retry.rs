//! Decides which failed trials are retried, and when: Harbor's rules, and one rule of rolltap.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::TrialOutcome;
use crate::failure::Cause;

/// The most attempts at a sample that are lost with their workers. A trial may be what kills them.
const MOST_LOSSES: u32 = 5;
/// The wait before the attempt that follows a lost one.
const AFTER_LOSS: Duration = Duration::from_secs(1);

/// Harbor's `RetryConfig`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryConfig {
    /// The maximum number of further attempts at a sample.
    pub max_retries: u32,
    /// Failures that are retried. `None` or an empty set for all that are not excluded.
    pub include_exceptions: Option<BTreeSet<String>>,
    /// Failures that are not retried, even if they are included.
    pub exclude_exceptions: Option<BTreeSet<String>>,
    /// The factor from each wait to the next.
    pub wait_multiplier: f64,
    /// The wait before the first retry, in seconds.
    pub min_wait_sec: f64,
    /// The maximum wait before a retry, in seconds.
    pub max_wait_sec: f64,
}

/// The earlier attempts at a sample in this run of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// The number of attempts that failed.
    pub failures: u32,
    /// The number of attempts whose workers were lost.
    pub losses: u32,
}

impl Retries {
    /// Returns the numbers after one more attempt.
    pub(crate) fn after(self, outcome: &TrialOutcome) -> Self {
        let Self { failures, losses } = self;
        match is_lost(outcome) {
            true => Self { losses: losses.saturating_add(1), failures },
            false => Self { failures: failures.saturating_add(1), losses },
        }
    }
}

fn is_lost(outcome: &TrialOutcome) -> bool {
    outcome.exception().is_some_and(|failure| failure.cause == Cause::WorkerLost)
}

impl Default for RetryConfig {
    fn default() -> Self {
        // Harbor's default list.
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
    /// Returns the wait before another attempt, or `None` if there is none.
    ///
    /// A failure of a step is not a failure of the trial, as in Harbor. The agent's own failure is never retried,
    /// whatever the lists contain, because that would make the policy look better than it is. A trial that the user
    /// stopped is not retried. An attempt that was lost with its worker has failed for no reason of its own, so these rules
    /// do not hold for it.
    pub(crate) fn wait(&self, outcome: &TrialOutcome, retries: Retries) -> Option<Duration> {
        let failure = outcome.exception()?;
        if is_lost(outcome) {
            return (retries.losses < MOST_LOSSES).then_some(AFTER_LOSS);
        }
        let retries = retries.failures;
        if retries >= self.max_retries || failure.is_agents_fault || outcome.is_cancelled() {
            return None;
        }
        let name = failure.cause.name();
        let excluded = self.exclude_exceptions.as_ref().is_some_and(|names| names.contains(name));
        // An empty list includes all failures, as in Harbor.
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
