//! Creates an environment for a task and prepares it for an agent.

use std::path::Path;
use std::time::Duration;

use rolltap_proxy::api::TrialOpened;

use crate::agents::{Ready, skill};
use crate::environment::{Environment, EnvironmentError, TrialLabel};
use crate::failure::{AGENT_SETUP_SEC, Cause, Phase, TrialFailure, environment_failure};
use crate::task::{Healthcheck, Task};
use crate::trial::TrialHost;
use crate::trial::healthcheck::{HealthcheckError, wait_until_healthy};
use crate::trial::{Timing, Trial};

/// Waits for the start of an environment, at most for this time.
///
/// # Errors
/// Returns the failure of this phase.
pub(crate) async fn started_within(
    limit: Option<Duration>,
    phase: Phase,
    start: impl Future<Output = Result<Environment, EnvironmentError>>,
) -> Result<Environment, TrialFailure> {
    match tokio::time::timeout(limit.unwrap_or(Duration::MAX), start).await {
        Ok(started) => {
            started.map_err(|error| TrialFailure::from_error(phase, Cause::EnvironmentStart, &error))
        }
        Err(_) => {
            let limit = limit.unwrap_or_default().as_secs_f64();
            let message = format!("the environment was not up after {limit} s");
            Err(TrialFailure::new(phase, Cause::EnvironmentStartTimeout, message))
        }
    }
}

impl Trial<'_> {
    pub(crate) async fn start_environment(&mut self) -> Option<Environment> {
        self.enter(Phase::EnvironmentSetup);
        let timing = Timing::start();
        let task = self.task.clone();
        let started = self.start(&task, self.plan.name.as_str(), Phase::EnvironmentSetup).await;
        self.outcome.environment_setup = Some(timing.finish());
        match started {
            Ok(environment) => {
                self.log.line("environment started");
                Some(environment)
            }
            Err(failure) => {
                self.fail(failure);
                None
            }
        }
    }

    /// Starts the environment of this task, which may be its verifier's own environment.
    pub(crate) async fn start(
        &self,
        task: &Task,
        label: &str,
        phase: Phase,
    ) -> Result<Environment, TrialFailure> {
        // A verifier's environment has the time limit of the task's environment. This is Harbor's rule.
        let TrialHost::Host(host) = &self.context.place else {
            return Err(TrialFailure::new(phase, Cause::Internal, "harbor starts its environments itself"));
        };
        let limit = self.plan.timeouts.environment_build(self.task.config.environment.build_timeout_sec);
        let start = async {
            let prepared = host.prepare(task).await?;
            let prepared = prepared.sharing(self.plan.agent.spec.shares());
            let mut prepared = prepared.keeping(self.plan.extras.keep);
            // A verifier's own environment must not have files that the agent may have written.
            if phase != Phase::Verifier {
                prepared = prepared.mounting(self.plan.extras.mounts.clone());
            }
            host.start(&prepared, task, &TrialLabel::new(label)).await
        };
        Box::pin(self.within(phase, started_within(limit, phase, start))).await?
    }

    /// Returns whether the environment is ready for an agent.
    pub(crate) async fn is_healthy(&mut self, environment: &Environment) -> bool {
        let Some(check) = self.task.config.environment.healthcheck.clone() else { return true };
        self.enter(Phase::Healthcheck);
        let checked = self.check_health(environment, &check, None).await;
        checked.map_err(|failure| self.fail(failure)).is_ok()
    }

    pub(crate) async fn check_health(
        &self,
        environment: &Environment,
        check: &Healthcheck,
        user: Option<&str>,
    ) -> Result<(), TrialFailure> {
        let phase = Phase::Healthcheck;
        let checked = Box::pin(wait_until_healthy(environment, check, user));
        match self.within(phase, checked).await? {
            Ok(()) => Ok(()),
            Err(error @ HealthcheckError::Unhealthy { .. }) => {
                Err(TrialFailure::from_error(phase, Cause::Healthcheck, &error))
            }
            Err(HealthcheckError::Environment(error)) => Err(environment_failure(phase, &error)),
        }
    }

    /// Sets up the agent for this task. The logs belong to the agent's time.
    pub(crate) async fn set_up_agent(
        &mut self,
        task: &Task,
        environment: &Environment,
        opened: &TrialOpened,
        logs: &Path,
    ) -> Result<Ready, TrialFailure> {
        let phase = Phase::AgentSetup;
        self.enter(phase);
        let limit = self.plan.timeouts.agent_setup(AGENT_SETUP_SEC);
        let timing = Timing::start();
        // The URLs depend on the network of the environment.
        let here = &opened.base_urls;
        let inside = environment.model_urls(here, self.public_urls.as_ref().unwrap_or(here)).await;
        self.urls_inside = Some(inside.map_err(|error| environment_failure(phase, &error))?);
        let assignment = self.assignment(task, environment, opened, logs, limit, &self.plan.request.stop);
        let skills = &self.plan.extras.skills;
        let setup = Box::pin(async {
            skill::put(skills, task, environment)
                .await
                .map_err(|error| environment_failure(phase, &error))?;
            self.plan.agent.spec.set_up(&assignment).await
        });
        let setup = tokio::time::timeout(limit.unwrap_or(Duration::MAX), setup);
        let ended = self.within(phase, setup).await;
        self.outcome.agent_setup.get_or_insert(timing.finish());
        ended?.unwrap_or_else(|_| {
            let limit = limit.unwrap_or_default().as_secs_f64();
            let message = format!("the agent was not ready after {limit} s");
            Err(TrialFailure::new(phase, Cause::AgentSetupTimeout, message))
        })
    }
}
