//! Runs a task's tests in their separate environment.

use super::tests_run::run_tests;
use super::{Artifacts, Rewards, VerificationContext};
use crate::environment::LogDirs;
use crate::failure::{Phase, TrialFailure, environment_failure};
use crate::task::{SeparateVerifier, Task};

/// Runs the tests in an environment that no agent has used. It gets only the collected artifacts. It is stopped after
/// the tests, whatever their result.
///
/// # Errors
/// Returns the failure if there are no rewards.
pub(crate) async fn verify_apart<C: VerificationContext>(
    context: &C,
    separate: &SeparateVerifier,
    task: &Task,
    artifacts: &Artifacts,
    logs: &LogDirs,
) -> Result<Rewards, TrialFailure> {
    let environment = context.start_separate(separate).await?;
    let verdict = match context.bounded(Box::pin(artifacts.hand_over(&environment))).await {
        Ok(Ok(())) => run_tests(context, &environment, task, logs).await,
        Ok(Err(error)) => Err(environment_failure(Phase::Verifier, &error)),
        Err(failure) => Err(failure),
    };
    context.stop_separate(environment).await;
    verdict
}
