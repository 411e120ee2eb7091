//! The life of one trial: open, start the environment, run the agent, seal, verify, set the reward, stop the
//! environment. The phases and their order are Harbor's. The proxy's trial covers the agent's time.

mod agent;
mod agent_reported;
mod context;
mod events;
mod extras;
mod healthcheck;
mod in_words;
mod integrity;
mod outcome;
mod overrides;
mod place;
mod plan;
mod proxy;
mod published_plane;
pub(crate) mod records;
mod retry;
pub mod runner;
pub(crate) mod spans;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rolltap_proxy::api::{BaseUrls, TrialOpened};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub use agent::{AgentLimit, AgentTimeouts, JobAgent};
pub(crate) use context::TrialContext;
pub use events::Events;
pub use extras::TrialExtras;
pub(crate) use healthcheck::wait_until_healthy;
pub(crate) use in_words::{in_words, verdict_in_words};
pub(crate) use outcome::is_valid;
pub use outcome::{Round, StepOutcome, Timing, TrialOutcome};
pub use overrides::TaskOverrides;
pub(crate) use overrides::resolved;
pub(crate) use place::TrialHost;
pub use plan::TrialPlan;
pub(crate) use plan::TrialRequest;
pub(crate) use published_plane::PublishedPlane;
pub use retry::{Retries, RetryConfig};

use crate::agents::Assignment;
use crate::environment::{Environment, STOP_TIMEOUT};
use crate::failure::{Cause, Phase, TrialFailure, chain};
use crate::job_dir::{Log, TrialDir, is_of_the_disk};
use crate::task::{EnvironmentConfig, Task};
use crate::verify::integrity::Rules;
use runner::instruction::Instruction;

/// The time for which an agent may run on after the job is cancelled, to hand in its results.
const CANCEL_GRACE: Duration = Duration::from_secs(1);
/// The time limit for collecting logs and artifacts.
pub(crate) const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// Stops an environment. Returns the problem, as a line of a log, if it is not removed in time.
pub(crate) async fn stop_in_time(environment: Environment) -> Result<(), String> {
    match tokio::time::timeout(STOP_TIMEOUT, environment.stop()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("environment not removed: {}", chain(&error))),
        Err(_) => Err(format!("environment not removed within {} s", STOP_TIMEOUT.as_secs())),
    }
}

/// Runs a trial from beginning to end. Any failure is in the outcome, and no environment is left behind.
pub(crate) async fn run(context: &TrialContext, plan: TrialPlan) -> TrialOutcome {
    let outcome = TrialOutcome::new(&plan);
    match prepare_dir(context, &plan) {
        Ok((dir, log)) => {
            let task = Arc::new(plan.extras.applied_to(&plan.task));
            // A deadline beyond the range of the clock is no deadline.
            let deadline = plan.timeouts.deadline().and_then(|limit| Instant::now().checked_add(limit));
            let trial = Trial {
                context,
                plan,
                task,
                dir,
                log,
                outcome,
                deadline,
                sealed: false,
                public_urls: None,
                urls_inside: None,
                rules: None,
                harbors_record: false,
            };
            match &context.place {
                TrialHost::Host(_) => Box::pin(trial.run()).await,
                TrialHost::Harbor(harbor) => Box::pin(trial.run_by_harbor(Arc::clone(harbor))).await,
                TrialHost::Workers(workers) => Box::pin(trial.run_by_workers(Arc::clone(workers))).await,
            }
        }
        Err(error) => {
            let failure = TrialFailure::from_error(Phase::Open, Cause::Internal, &error);
            // A full disk would fail every further trial too, so the job halts.
            let halts = is_of_the_disk(&error).then(|| failure.to_string());
            TrialOutcome { halts, ..outcome.failed(failure) }
        }
    }
}

fn prepare_dir(context: &TrialContext, plan: &TrialPlan) -> std::io::Result<(TrialDir, Log)> {
    let dir = context.dir.create_trial(plan.name.as_str())?;
    crate::job_dir::write_json(&dir.version(), &context.records.trial_version(plan))?;
    crate::job_dir::write_json(&dir.config(), &context.records.trial_config(plan))?;
    let log = Log::create(&dir.log())?;
    Ok((dir, log))
}

struct Trial<'a> {
    context: &'a TrialContext,
    plan: TrialPlan,
    /// The task of the plan, with the job's additions.
    task: Arc<Task>,
    dir: TrialDir,
    log: Log,
    outcome: TrialOutcome,
    deadline: Option<Instant>,
    sealed: bool,
    /// Whether Harbor wrote the trial's result.
    harbors_record: bool,
    /// The base URLs of the model for other machines. `None` if they are those for this host.
    public_urls: Option<BaseUrls>,
    /// The base URLs of the model as seen from inside the environment. `None` before the environment exists.
    urls_inside: Option<BaseUrls>,
    /// The rules for the agent's commands. `None` before the environment exists, and if Harbor starts it.
    rules: Option<Rules>,
}

impl Trial<'_> {
    async fn run(mut self) -> TrialOutcome {
        if let Some(mut opened) = self.open().await {
            if let Some(published) = &self.context.published {
                let here = published.here(&opened.base_urls);
                self.public_urls = Some(std::mem::replace(&mut opened.base_urls, here));
            }
            let mut environment = self.start_environment().await;
            if let Some(inside) = &environment {
                if self.is_healthy(inside).await {
                    self.work(&mut environment, &opened).await;
                } else {
                    Box::pin(self.save(inside)).await;
                }
            }
            // The last round seals the trial, but it may not have begun.
            self.seal_trial().await;
            self.look_at_returned(&opened).await;
            Box::pin(self.examine_commands(&opened)).await;
            self.put_reward().await;
            if let Some(environment) = environment {
                self.stop(environment).await;
            }
        }
        self.finish()
    }

    /// Runs the task, in one go or step by step.
    async fn work(&mut self, environment: &mut Option<Environment>, opened: &TrialOpened) {
        let task = Arc::clone(&self.task);
        if !task.steps.is_empty() {
            return Box::pin(self.run_steps(environment, opened)).await;
        }
        let instruction = Instruction { task: &task, dir: self.dir.clone(), step: None, is_last: true };
        let round = Box::pin(self.round(environment, opened, &instruction)).await;
        self.outcome.take(round);
    }

    /// Writes an event for the start of a phase.
    fn enter(&self, phase: Phase) {
        self.context.events.trial_phase(&self.plan.name, phase);
    }

    /// Records the first failure only, because later failures usually follow from it.
    fn fail(&mut self, failure: TrialFailure) {
        self.log.line(format!("failed: {failure}"));
        self.outcome.failure.get_or_insert(failure);
    }

    /// Returns the result of the work, or a failure if the job stops or the trial's deadline passes first.
    async fn within<T>(&self, phase: Phase, work: impl Future<Output = T>) -> Result<T, TrialFailure> {
        tokio::select! {
            done = work => Ok(done),
            failure = self.ended(phase) => Err(failure),
        }
    }

    /// Waits until the job stops or the trial's deadline passes. Returns the failure of this phase.
    async fn ended(&self, phase: Phase) -> TrialFailure {
        let stop = &self.plan.request.stop;
        let Some(deadline) = self.deadline else {
            stop.cancelled().await;
            return TrialFailure::cancelled(phase);
        };
        tokio::select! {
            () = stop.cancelled() => TrialFailure::cancelled(phase),
            () = sleep_until(deadline) => TrialFailure::out_of_time(phase),
        }
    }

    fn has_ended(&self, phase: Phase) -> Option<TrialFailure> {
        let is_over = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        match self.plan.request.stop.is_cancelled() {
            true => Some(TrialFailure::cancelled(phase)),
            false => is_over.then(|| TrialFailure::out_of_time(phase)),
        }
    }

    fn assignment<'a>(
        &'a self,
        task: &'a Task,
        environment: &'a Environment,
        trial: &'a TrialOpened,
        logs: &'a Path,
        timeout: Option<Duration>,
        cancel: &'a CancellationToken,
    ) -> Assignment<'a> {
        let EnvironmentConfig { mcp_servers, skills_dir, .. } = &task.config.environment;
        Assignment {
            task,
            environment,
            trial,
            urls_inside: self.urls_inside.as_ref().unwrap_or(&trial.base_urls),
            model: self.plan.agent.model.as_deref(),
            mcp_servers,
            skills_dir: skills_dir.as_deref(),
            timeout,
            logs,
            cancel,
        }
    }

    /// Stops the environment. The reward is set by now, so an error here is no failure of the trial. The end of the job
    /// cleans up once more.
    async fn stop(&self, environment: Environment) {
        let gone = match environment.kept_as() {
            Some(name) => format!("environment ended; its container {name} is not removed"),
            None => "environment removed".to_owned(),
        };
        self.log.line(stop_in_time(environment).await.map_or_else(|problem| problem, |()| gone));
    }

    fn is_to_be_retried(&self) -> bool {
        let stopped = self.plan.request.stop.is_cancelled();
        let again = || self.context.retry.wait(&self.outcome, self.plan.retries).is_some();
        // A trial that halts the job is retried by the next run, when its problem may be gone.
        self.outcome.halts.is_some() || (!stopped && again())
    }

    fn finish(mut self) -> TrialOutcome {
        // `put_reward` decides this for a trial that is open at the proxy.
        if !self.outcome.opened {
            self.outcome.awaits_retry = self.is_to_be_retried();
        }
        self.outcome.finished_at = Timestamp::now();
        self.record();
        self.outcome
    }

    fn write_record(&self) -> std::io::Result<()> {
        let record = self.context.records.trial_result(&self.plan, &self.outcome);
        crate::job_dir::write_json(&self.dir.result(), &record)?;
        let Some(failure) = &self.outcome.failure else { return Ok(()) };
        std::fs::write(self.dir.exception(), format!("{failure}\n"))
    }

    /// Writes the trial's result. Returns whether it was written.
    fn record(&mut self) -> bool {
        let written = if self.harbors_record { self.write_beside_harbor() } else { self.write_record() };
        let Err(error) = written else { return true };
        let problem = format!("cannot write the result of {}: {error}", self.plan.name);
        tracing::warn!("{problem}");
        if is_of_the_disk(&error) {
            self.outcome.halts.get_or_insert_with(|| problem.clone());
        }
        self.fail(TrialFailure::new(Phase::Reward, Cause::Internal, problem));
        false
    }
}
