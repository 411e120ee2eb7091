//! The end of an episode: collects what the task names and runs its tests, by the rules of a trial.

use std::sync::Arc;

use super::environment_guard::EnvironmentGuard;
use super::hosts::Hosts;
use crate::environment::{Environment, EnvironmentKind};
use crate::failure::{Cause, Phase, TrialFailure, chain};
use crate::job_dir::TrialDir;
use crate::task::{NetworkPlan, SeparateVerifier, Task};
use crate::trial::{Artifacts, environment_failure, run_hook, verifier_failure};
use crate::verify::{Rewards, verify};

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
        for hook in &self.task.config.verifier.collect {
            // As in a trial, a failed command does not prevent the tests.
            if let Err(problem) = run_hook(room, hook).await {
                tracing::info!(episode = self.label, command = hook.command, problem, "before collecting");
            }
        }
        match &self.task.separate_verifier {
            None => self.run_tests(room, &self.task.network).await,
            Some(separate) => Box::pin(self.judge_apart(separate, room)).await,
        }
    }

    /// Verifies in an environment that the caller has not used. It gets only the collected artifacts.
    async fn judge_apart(
        &self,
        separate: &SeparateVerifier,
        room: &EnvironmentGuard,
    ) -> Result<Rewards, TrialFailure> {
        let artifacts = Artifacts::new(&self.task.config.artifacts, self.dir.artifacts());
        let say = |line: String| tracing::info!(episode = self.label, "{line}");
        artifacts.fetch(room, say).await;
        if let Err(error) = room.download_logs(&artifacts.of_logs(self.dir.logs())).await {
            say(format!("logs not collected: {}", chain(&error)));
        }
        let environment = Arc::new(separate.environment.clone());
        let label = format!("{}-verifier", self.label);
        let apart = self.hosts.open(self.kind, &environment, &label).await.map_err(|error| {
            TrialFailure::new(Phase::Verifier, Cause::EnvironmentStart, error.to_string())
        })?;
        let handed_over = artifacts.hand_over(&apart).await;
        handed_over.map_err(|error| environment_failure(Phase::Verifier, &error))?;
        let judged = self.run_tests(&apart, &environment.network).await;
        // After an error above, dropping the guard removes the environment.
        apart.leave().await;
        judged
    }

    async fn run_tests(&self, inside: &Environment, network: &NetworkPlan) -> Result<Rewards, TrialFailure> {
        let set = inside.set_network(&network.verifier).await;
        set.map_err(|error| environment_failure(Phase::Verifier, &error))?;
        let limit = self.hosts.timeouts.verifier(self.task.config.verifier.timeout_sec);
        let verified = Box::pin(verify(self.task, inside, &self.dir.logs(), limit)).await;
        verified.map_err(|error| verifier_failure(&error))
    }
}
