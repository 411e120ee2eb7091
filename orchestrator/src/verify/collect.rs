//! Collects the artifacts and logs of an environment. A problem is logged, and the verification continues.

use super::hooks::run_hooks;
use super::{Artifacts, Collected, VerificationContext};
use crate::environment::{Environment, LogDirs};
use crate::failure::chain;
use crate::task::Task;

/// Runs the task's own commands, and then fetches its artifacts. The returned manifest is empty if the fetch was given
/// up.
pub(crate) async fn collect<C: VerificationContext>(
    context: &C,
    environment: &Environment,
    task: &Task,
    artifacts: &Artifacts,
) -> Vec<Collected> {
    run_hooks(context, environment, task).await;
    // The download of the logs brings all artifacts, so no other request is needed.
    if !artifacts.are_named() {
        return artifacts.come_with_the_logs();
    }
    let fetch = Box::pin(artifacts.fetch(environment, |line| context.log_line(line)));
    context.download("artifacts", fetch).await.unwrap_or_default()
}

/// Downloads the logs. Returns whether they arrived.
pub(crate) async fn download_logs<C: VerificationContext>(
    context: &C,
    environment: &Environment,
    logs: &LogDirs,
) -> bool {
    match context.download("logs", environment.download_logs(logs)).await {
        Some(Ok(_)) => true,
        Some(Err(error)) => {
            context.log_line(format!("logs not collected: {}", chain(&error)));
            false
        }
        None => false,
    }
}
