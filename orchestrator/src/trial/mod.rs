//! The life of one trial: open, environment, agent, seal, tests, reward, gone. Harbor's phases in Harbor's order, with
//! the proxy's trial around the agent's time.

mod artifacts;
mod by_harbor;
mod exception_class;
mod extras;
mod failure;
mod healthcheck;
mod inside;
mod outcome;
mod returned;
mod round;
mod start;
mod steps;
mod timeouts;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rolltap_proxy::api::{BaseUrls, OpenTrial, PutReward, TrialOpened, TrialStatus};
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use exception_class::ExceptionClass;
pub use extras::TrialExtras;
pub use failure::{Cause, Phase, TrialFailure, chain};
pub use outcome::{Round, StepOutcome, Timing, TrialOutcome};
pub use timeouts::{AGENT_SETUP_SEC, InvalidTimeout, PhaseLimit, TimeoutPolicy};

use crate::agents::Assignment;
use crate::environment::Environment;
use crate::job::tasks::GitOrigin;
use crate::job::{JobAgent, JobContext, Place};
use crate::job_dir::{Log, TrialDir};
use crate::task::{EnvironmentConfig, Task};
use round::Instruction;

/// How long an agent may go on after the job is cancelled, to hand in what it has.
const CANCEL_GRACE: Duration = Duration::from_secs(1);
/// How long collecting logs and artifacts may take.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(300);
/// How long removing an environment may take before it is left to the end of the job.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// One trial to run.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// Harbor's identifier of a trial, beside its name.
    pub id: Uuid,
    /// The trial's name: its folder, and its id at the proxy.
    pub name: TrialId,
    /// What to do.
    pub task: Arc<Task>,
    /// Who does it.
    pub agent: Arc<JobAgent>,
    /// The dataset that the task counts to.
    pub source: Option<String>,
    /// Where the task came from, if it came from elsewhere.
    pub git: Option<GitOrigin>,
    /// Which version of the task: a hash over its files.
    pub task_checksum: String,
    /// The task's name, as the proxy takes it.
    pub task_id: TaskId,
    /// The samples of this task in this job.
    pub group_id: GroupId,
    /// How many there are.
    pub group_size: u32,
    /// Which one this is, from 0.
    pub sample_index: u32,
    /// Which try at this sample, from 0. A later one supersedes those before it.
    pub attempt: u32,
    /// How long its phases may take.
    pub timeouts: TimeoutPolicy,
    /// What the job adds to the task.
    pub extras: Arc<TrialExtras>,
    /// How many attempts at this sample this run of the job has made before.
    pub retries: u32,
    /// Attempts whose place this one takes, each with the reward that it is given once this one is open: a group in which
    /// every sample has one closes, and takes no further attempt.
    pub supersedes: Vec<(TrialId, PutReward)>,
}

/// Runs a trial from beginning to end. Whatever fails is in the outcome, and no environment is left behind.
pub(crate) async fn run(context: &JobContext, plan: TrialPlan) -> TrialOutcome {
    let outcome = TrialOutcome::new(&plan);
    match prepare_dir(context, &plan) {
        Ok((dir, log)) => {
            let task = Arc::new(plan.extras.applied_to(&plan.task));
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
                urls_inside: None,
                harbors_record: false,
            };
            match &context.place {
                Place::Host(_) => Box::pin(trial.run()).await,
                Place::Harbor(harbor) => Box::pin(trial.run_by_harbor(Arc::clone(harbor))).await,
            }
        }
        Err(error) => outcome.failed(TrialFailure::from_error(Phase::Open, Cause::Internal, &error)),
    }
}

fn prepare_dir(context: &JobContext, plan: &TrialPlan) -> std::io::Result<(TrialDir, Log)> {
    let dir = context.dir.create_trial(plan.name.as_str())?;
    crate::job_dir::write_json(&dir.config(), &context.records.trial_config(plan))?;
    let log = Log::create(&dir.log())?;
    Ok((dir, log))
}

struct Trial<'a> {
    context: &'a JobContext,
    plan: TrialPlan,
    /// The plan's, with what the job adds.
    task: Arc<Task>,
    dir: TrialDir,
    log: Log,
    outcome: TrialOutcome,
    deadline: Option<Instant>,
    sealed: bool,
    /// Harbor wrote the trial's result.
    harbors_record: bool,
    /// Where the model is, as seen from inside; known once there is an environment.
    urls_inside: Option<BaseUrls>,
}

impl Trial<'_> {
    async fn run(mut self) -> TrialOutcome {
        if let Some(opened) = self.open().await {
            let mut environment = self.start_environment().await;
            if let Some(inside) = &environment {
                if self.is_healthy(inside).await {
                    self.work(&mut environment, &opened).await;
                } else {
                    Box::pin(self.save(inside)).await;
                }
            }
            self.seal_trial().await;
            self.look_at_returned().await;
            self.put_reward().await;
            if let Some(environment) = environment {
                self.stop(environment).await;
            }
        }
        self.finish()
    }

    /// The task, in one go or step by step.
    async fn work(&mut self, environment: &mut Option<Environment>, opened: &TrialOpened) {
        let task = Arc::clone(&self.task);
        if !task.steps.is_empty() {
            return Box::pin(self.run_steps(environment, opened)).await;
        }
        let instruction = Instruction { task: &task, dir: self.dir.clone(), step: None, is_last: true };
        let round = Box::pin(self.round(environment, opened, &instruction)).await;
        self.outcome.take(round);
    }

    /// Tells that a phase begins.
    fn enter(&self, phase: Phase) {
        self.context.events.trial_phase(&self.plan.name, phase);
    }

    /// Keeps the first failure: later ones mostly follow from it.
    fn fail(&mut self, failure: TrialFailure) {
        self.log.line(format!("failed: {failure}"));
        self.outcome.failure.get_or_insert(failure);
    }

    /// What the work gives, unless the trial has to end first.
    async fn within<T>(&self, phase: Phase, work: impl Future<Output = T>) -> Result<T, TrialFailure> {
        tokio::select! {
            done = work => Ok(done),
            failure = self.ended(phase) => Err(failure),
        }
    }

    /// Waits until the trial has to end, in this phase.
    async fn ended(&self, phase: Phase) -> TrialFailure {
        let stop = &self.context.cancellation.stop;
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
        match self.context.cancellation.stop.is_cancelled() {
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

    async fn open(&mut self) -> Option<TrialOpened> {
        self.enter(Phase::Open);
        let plan = &self.plan;
        let trial = OpenTrial {
            trial_id: Some(plan.name.clone()),
            group_id: Some(plan.group_id.clone()),
            group_size: Some(plan.group_size),
            sample_index: plan.sample_index,
            attempt: plan.attempt,
            agent: Some(plan.agent.spec.name().to_owned()),
            model: plan.agent.model.clone(),
            history: self.context.history,
            environment: Some(self.context.environment.to_string()),
            sampling: self.context.sampling.clone(),
            ..OpenTrial::of_task(plan.task_id.clone())
        };
        match self.context.admin.open_trial(&trial).await {
            Ok(opened) => {
                self.outcome.opened = true;
                self.log.line(format!("trial opened at the proxy as {}", opened.trial_id));
                self.supersede().await;
                Some(opened)
            }
            Err(error) => {
                self.fail(TrialFailure::from_error(Phase::Open, Cause::Proxy, &error));
                None
            }
        }
    }

    /// Gives earlier attempts at the sample their rewards, which count no more.
    async fn supersede(&self) {
        for (earlier, reward) in &self.plan.supersedes {
            if let Err(error) = self.context.admin.put_reward(earlier, reward).await {
                self.log.line(format!("reward of {earlier} not put: {}", chain(&error)));
            }
        }
    }

    /// Ends the capture before anything else is done, so that no straggler adds a token.
    async fn seal(&mut self, round: &mut Round) {
        if let Some(status) = self.seal_trial().await {
            round.failure = self.weigh_blame(&status, round.failure.take());
        }
    }

    /// Once; none where that was done before, or failed.
    async fn seal_trial(&mut self) -> Option<TrialStatus> {
        if std::mem::replace(&mut self.sealed, true) {
            return None;
        }
        match self.context.admin.seal(&self.plan.name).await {
            Ok(status) => {
                self.log.line(format!("sealed after {} calls", status.calls.total));
                self.outcome.status = Some(status.clone());
                Some(status)
            }
            Err(error) => {
                self.fail(TrialFailure::from_error(Phase::Seal, Cause::Proxy, &error));
                None
            }
        }
    }

    /// The proxy knows what a command's exit code does not say: whether its model ever answered.
    fn weigh_blame(&self, status: &TrialStatus, failure: Option<TrialFailure>) -> Option<TrialFailure> {
        let calls = status.calls;
        let none_answered = calls.total > 0 && calls.complete == 0;
        match failure {
            None if none_answered => {
                let message = format!("none of the agent's {} model calls was answered", calls.total);
                let failure = TrialFailure::new(Phase::Agent, Cause::ModelApi, message);
                self.log.line(format!("failed: {failure}"));
                Some(failure)
            }
            Some(failure)
                if (failure.cause == Cause::NonZeroAgentExitCode && calls.failed > 0)
                    || (failure.cause == Cause::AgentTimeout && none_answered) =>
            {
                let why = format!("{} of its {} model calls failed", calls.failed, calls.total);
                Some(failure.not_the_agents(&why))
            }
            failure => failure,
        }
    }

    async fn put_reward(&mut self) {
        self.outcome.awaits_retry = self.is_to_be_retried();
        // Before the proxy is told: what is complete there, and closes its group, has a result here whenever this process dies.
        self.outcome.finished_at = Timestamp::now();
        self.record();
        if self.outcome.awaits_retry || self.outcome.is_cancelled() {
            return self.log.line("the reward waits for another attempt");
        }
        match self.context.admin.put_reward(&self.plan.name, &self.outcome.reward_to_put()).await {
            Ok(status) => self.outcome.status = Some(status),
            Err(error) => self.fail(TrialFailure::from_error(Phase::Reward, Cause::Proxy, &error)),
        }
    }

    /// The reward stands by now, so trouble here is no failure of the trial; the end of the job cleans up once more.
    async fn stop(&self, environment: Environment) {
        match tokio::time::timeout(STOP_TIMEOUT, environment.stop()).await {
            Ok(Ok(())) => self.log.line("environment removed"),
            Ok(Err(error)) => self.log.line(format!("environment not removed: {}", chain(&error))),
            Err(_) => self.log.line(format!("environment not removed within {STOP_TIMEOUT:?}")),
        }
    }

    fn is_to_be_retried(&self) -> bool {
        let stopped = self.context.cancellation.stop.is_cancelled();
        !stopped && self.context.retry.wait(&self.outcome, self.plan.retries).is_some()
    }

    fn finish(mut self) -> TrialOutcome {
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

    fn record(&self) {
        let written = if self.harbors_record { self.lay_beside() } else { self.write_record() };
        if let Err(error) = written {
            self.log.line(format!("result not written: {error}"));
            tracing::warn!(trial = %self.plan.name, %error, "cannot write a trial's result");
        }
    }
}
