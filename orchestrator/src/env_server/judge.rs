//! The end of an episode: collects what the task names and runs its tests, by the rules of a trial.

use std::sync::Arc;

use super::environment_guard::EnvironmentGuard;
use super::hosts::Hosts;
use crate::environment::EnvironmentKind;
use crate::failure::{Cause, Phase, TimeoutPolicy, TrialFailure};
use crate::job_dir::TrialDir;
use crate::task::{SeparateVerifier, Task};
use crate::verify::{self, Artifacts, Rewards, VerificationContext};

/// Verifies the work in one environment.
pub(super) struct Judge<'a> {
    pub(super) hosts: &'a Hosts,
    pub(super) kind: EnvironmentKind,
    pub(super) task: &'a Task,
    /// The episode's name.
    pub(super) label: &'a str,
    /// The directory for logs.
    pub(super) dir: &'a TrialDir,
}

impl Judge<'_> {
    /// Runs the tests and returns their rewards.
    ///
    /// # Errors
    /// Returns the failure if there are no rewards.
    pub(super) async fn judge(&self, room: &EnvironmentGuard) -> Result<Rewards, TrialFailure> {
        let (task, logs) = (self.task, self.dir.logs());
        let Some(separate) = &task.separate_verifier else {
            // The tests see the artifacts in place, so none are fetched.
            verify::run_hooks(self, room, task).await;
            return verify::run_tests(self, room, task, &logs).await;
        };
        let artifacts = Artifacts::new(&task.config.artifacts, self.dir.artifacts());
        verify::collect(self, room, task, &artifacts).await;
        verify::download_logs(self, room, &logs).await;
        Box::pin(verify::verify_apart(self, separate, task, &artifacts, &logs)).await
    }
}

/// A reset or the removal of the environment drops the whole verification, so this context ends no work by itself.
impl VerificationContext for Judge<'_> {
    type Separate = EnvironmentGuard;

    fn timeouts(&self) -> &TimeoutPolicy {
        &self.hosts.timeouts
    }

    fn log_line(&self, line: String) {
        tracing::info!(episode = self.label, "{line}");
    }

    fn time_is_over(&self) -> Option<TrialFailure> {
        None
    }

    async fn bounded<T>(&self, work: impl Future<Output = T>) -> Result<T, TrialFailure> {
        Ok(work.await)
    }

    async fn download<T>(&self, _subject: &str, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }

    async fn start_separate(&self, separate: &SeparateVerifier) -> Result<EnvironmentGuard, TrialFailure> {
        let task = Arc::new(separate.environment.clone());
        let label = format!("{}-verifier", self.label);
        let opened = self.hosts.open(self.kind, &task, &label).await;
        opened.map_err(|error| TrialFailure::new(Phase::Verifier, Cause::EnvironmentStart, error.to_string()))
    }

    async fn stop_separate(&self, environment: EnvironmentGuard) {
        environment.leave().await;
    }
}
