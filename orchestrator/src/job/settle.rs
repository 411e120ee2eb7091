//! Checks and completes the settings of a job before anything of it is written: tasks, models, agents, captures.

use super::check::check;
use super::proxy::{check_captures, choose_models};
use super::ready::make_ready;
use super::unusable::set_apart;
use super::{JobError, JobSettings, Progress, SkippedTasks};
use crate::common::cancellation::Cancellation;

/// Checks the settings, resolves the variables of the tasks, chooses the models, installs the agents, and checks that
/// calls are captured.
pub(super) async fn settle(
    settings: &mut JobSettings,
    progress: &Progress,
    cancellation: &Cancellation,
) -> Result<(), JobError> {
    leave_out_unusable(settings)?;
    check(settings)?;
    make_ready(settings)?;
    let stopped = || JobError::Stopped;
    let finding = progress.activity("asking the upstreams", "for their models");
    settings.agents = cancellation.unless_stopped(choose_models(settings)).await.ok_or_else(stopped)??;
    drop(finding);
    for agent in &mut settings.agents {
        let _installing = progress.activity("installing agent", agent.spec.name());
        let installed = cancellation.unless_stopped(Box::pin(agent.spec.install())).await;
        installed.ok_or_else(|| JobError::Cancelled(agent.spec.name().to_owned()))??;
    }
    if settings.preflight {
        let _checking = progress.activity("checking", "that a call to the model is captured");
        let checked = cancellation.unless_stopped(Box::pin(check_captures(settings))).await;
        checked.ok_or_else(stopped)??;
    }
    Ok(())
}

fn leave_out_unusable(settings: &mut JobSettings) -> Result<(), JobError> {
    let Some(unusable) = set_apart(settings) else { return Ok(()) };
    if unusable.stop_the_job(settings.skip_invalid) {
        return Err(unusable.into());
    }
    tracing::warn!("{}", SkippedTasks(&unusable));
    Ok(())
}
