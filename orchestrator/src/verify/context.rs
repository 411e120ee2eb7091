//! The parts of a verification that differ between a trial of a job and an episode of the environment server.

use std::ops::Deref;

use crate::environment::Environment;
use crate::failure::{TimeoutPolicy, TrialFailure};
use crate::task::SeparateVerifier;

/// A trial or an episode whose work is verified. Each has its own log, its own limits, and its own way to start an
/// environment.
pub(crate) trait VerificationContext {
    /// A running environment in which only the tests run.
    type Separate: Deref<Target = Environment>;

    /// Returns the time limits of the phases.
    fn timeouts(&self) -> &TimeoutPolicy;

    /// Writes a line to the log.
    fn log_line(&self, line: String);

    /// Returns the failure if the time for this work is over, so that nothing further may start.
    fn time_is_over(&self) -> Option<TrialFailure>;

    /// Returns the output of `work`, or a failure if the time for it ends first.
    async fn bounded<T>(&self, work: impl Future<Output = T>) -> Result<T, TrialFailure>;

    /// Returns the output of a download. If it is given up, returns `None` and logs the reason. `subject` names the
    /// files in the log.
    async fn download<T>(&self, subject: &str, work: impl Future<Output = T>) -> Option<T>;

    /// Starts the separate environment of a task's tests.
    async fn start_separate(&self, separate: &SeparateVerifier) -> Result<Self::Separate, TrialFailure>;

    /// Stops the separate environment. A problem is logged.
    async fn stop_separate(&self, environment: Self::Separate);
}
