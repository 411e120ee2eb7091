//! The life of one trial: open, environment, agent, seal, tests, reward, gone. Harbor's phases in Harbor's order, with
//! the proxy's trial around the agent's time.

mod failure;
mod outcome;
mod returned;
mod timeouts;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rolltap_agent::terminal::Terminal;
use rolltap_proxy::api::{OpenTrial, PutReward, TrialOpened, TrialStatus};
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use uuid::Uuid;

pub use failure::{Cause, Phase, TrialFailure, chain};
pub use outcome::{Timing, TrialOutcome};
pub use timeouts::{AGENT_SETUP_SEC, InvalidTimeout, PhaseLimit, TimeoutPolicy};

use crate::agents::Assignment;
use crate::environment::{Environment, LogDirs, TrialLabel};
use crate::job::{JobAgent, JobContext};
use crate::job_dir::{Log, TrialDir};
use crate::task::Task;
use crate::verifier::{self, VerifierError};

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
}

/// Runs a trial from beginning to end. Whatever fails is in the outcome, and no environment is left behind.
pub(crate) async fn run(context: &JobContext, plan: TrialPlan) -> TrialOutcome {
    let outcome = TrialOutcome::new(&plan);
    match prepare_dir(context, &plan) {
        Ok((dir, log)) => Box::pin(Trial { context, plan, dir, log, outcome }.run()).await,
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
    dir: TrialDir,
    log: Log,
    outcome: TrialOutcome,
}

impl Trial<'_> {
    async fn run(mut self) -> TrialOutcome {
        if let Some(opened) = self.open().await {
            let environment = self.start_environment().await;
            let terminal = match &environment {
                Some(environment) => self.let_agent_work(environment, &opened).await,
                None => None,
            };
            self.seal().await;
            if let Some(environment) = &environment {
                self.verify(environment).await;
            }
            // What the agent left running in it is part of its work until the tests have seen it.
            drop(terminal);
            self.put_reward().await;
            self.look_at_returned().await;
            if let Some(environment) = environment {
                self.stop(environment).await;
            }
        }
        self.finish()
    }

    /// Keeps the first failure: later ones mostly follow from it.
    fn fail(&mut self, failure: TrialFailure) {
        self.log.line(format!("failed: {failure}"));
        self.outcome.failure.get_or_insert(failure);
    }

    async fn open(&mut self) -> Option<TrialOpened> {
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
                Some(opened)
            }
            Err(error) => {
                self.fail(TrialFailure::from_error(Phase::Open, Cause::Proxy, &error));
                None
            }
        }
    }

    async fn start_environment(&mut self) -> Option<Environment> {
        let timing = Timing::start();
        let limit = self.plan.timeouts.environment_build(self.plan.task.config.environment.build_timeout_sec);
        let limit = limit.unwrap_or(Duration::MAX);
        let started =
            self.context.cancellation.unless_stopped(tokio::time::timeout(limit, self.start())).await;
        self.outcome.environment_setup = Some(timing.finish());
        let phase = Phase::EnvironmentSetup;
        let failure = match started {
            Some(Ok(Ok(environment))) => {
                self.log.line("environment started");
                return Some(environment);
            }
            Some(Ok(Err(error))) => TrialFailure::from_error(phase, Cause::EnvironmentStart, &error),
            Some(Err(_)) => {
                let message = format!("the environment was not up after {} s", limit.as_secs_f64());
                TrialFailure::new(phase, Cause::EnvironmentStartTimeout, message)
            }
            None => TrialFailure::cancelled(phase),
        };
        self.fail(failure);
        None
    }

    async fn start(&self) -> Result<Environment, crate::environment::EnvironmentError> {
        let prepared = self.context.host.prepare(&self.plan.task).await?;
        let prepared = prepared.sharing(self.plan.agent.spec.shares());
        let label = TrialLabel::new(self.plan.name.as_str());
        self.context.host.start(&prepared, &self.plan.task, &label).await
    }

    /// Gives back the agent's terminal, if it had one.
    async fn let_agent_work(&mut self, environment: &Environment, opened: &TrialOpened) -> Option<Terminal> {
        let stop = &self.context.cancellation.stop;
        let logs = self.dir.agent();
        let assignment = Assignment {
            task: &self.plan.task,
            environment,
            trial: opened,
            model: self.plan.agent.model.as_deref(),
            mcp_servers: &[],
            skills_dir: None,
            timeout: self.plan.timeouts.agent(self.plan.task.config.agent.timeout_sec),
            logs: &logs,
            cancel: stop,
        };
        let timing = Timing::start();
        let work = Box::pin(self.plan.agent.spec.run(assignment));
        let outcome = tokio::select! {
            outcome = work => outcome,
            () = async { stop.cancelled().await; tokio::time::sleep(CANCEL_GRACE).await } => Default::default(),
        };
        self.outcome.agent_execution = Some(timing.finish());
        self.outcome.agent_metadata = outcome.metadata;
        self.log.line("agent's time is over");
        if stop.is_cancelled() {
            self.fail(TrialFailure::cancelled(Phase::Agent));
        } else if let Some(failure) = outcome.failure {
            self.fail(failure);
        }
        outcome.terminal
    }

    /// Ends the capture before anything else is done, so that no straggler adds a token.
    async fn seal(&mut self) {
        match self.context.admin.seal(&self.plan.name).await {
            Ok(status) => {
                self.log.line(format!("sealed after {} calls", status.calls.total));
                self.weigh_blame(&status);
                self.outcome.status = Some(status);
            }
            Err(error) => self.fail(TrialFailure::from_error(Phase::Seal, Cause::Proxy, &error)),
        }
    }

    /// The proxy knows what a command's exit code does not say: whether its model ever answered.
    fn weigh_blame(&mut self, status: &TrialStatus) {
        let calls = status.calls;
        let none_answered = calls.total > 0 && calls.complete == 0;
        match self.outcome.failure.take() {
            None if none_answered => {
                let message = format!("none of the agent's {} model calls was answered", calls.total);
                self.fail(TrialFailure::new(Phase::Agent, Cause::ModelApi, message));
            }
            Some(failure)
                if (failure.cause == Cause::NonZeroAgentExitCode && calls.failed > 0)
                    || (failure.cause == Cause::AgentTimeout && none_answered) =>
            {
                let why = format!("{} of its {} model calls failed", calls.failed, calls.total);
                self.outcome.failure = Some(failure.not_the_agents(&why));
            }
            failure => self.outcome.failure = failure,
        }
    }

    /// Runs the tests where there is something to test, and collects the logs either way.
    async fn verify(&mut self, environment: &Environment) {
        let logs = self.dir.logs();
        if self.outcome.failure.as_ref().is_some_and(|failure| !failure.cause.leaves_work_to_verify()) {
            return self.collect(environment, &logs).await;
        }
        let limit = self.plan.timeouts.verifier(self.plan.task.config.verifier.timeout_sec);
        let timing = Timing::start();
        let tests = Box::pin(verifier::verify(&self.plan.task, environment, &logs, limit));
        let verdict = self.context.cancellation.unless_stopped(tests).await;
        self.outcome.verifier = Some(timing.finish());
        match verdict {
            Some(Ok(rewards)) => {
                self.log.line(format!("verified: {:?}", rewards.rewards));
                self.outcome.reward = rewards.reward;
                self.outcome.rewards = rewards.rewards;
            }
            Some(Err(error)) => {
                self.fail(verifier_failure(&error));
                if matches!(error, VerifierError::Environment(_)) {
                    self.collect(environment, &logs).await;
                }
            }
            None => {
                self.fail(TrialFailure::cancelled(Phase::Verifier));
                self.collect(environment, &logs).await;
            }
        }
    }

    /// What cannot be had is said in the trial's log; the trial goes on without.
    async fn collect(&self, environment: &Environment, logs: &LogDirs) {
        let download = tokio::time::timeout(DOWNLOAD_TIMEOUT, environment.download_logs(logs));
        match self.context.cancellation.unless_hurried(download).await {
            Some(Ok(Ok(_))) => {}
            Some(Ok(Err(error))) => self.log.line(format!("logs not collected: {}", chain(&error))),
            Some(Err(_)) => self.log.line(format!("logs not collected within {DOWNLOAD_TIMEOUT:?}")),
            None => self.log.line("logs not collected: in a hurry"),
        }
    }

    async fn put_reward(&mut self) {
        let reward = PutReward {
            rewards: self.outcome.rewards.clone(),
            reward: self.outcome.reward,
            valid: Some(self.outcome.reward_is_valid()),
            failure_cause: self.outcome.failure.as_ref().map(|failure| failure.cause.name().to_owned()),
        };
        match self.context.admin.put_reward(&self.plan.name, &reward).await {
            Ok(status) => self.outcome.status = Some(status),
            Err(error) => self.fail(TrialFailure::from_error(Phase::Reward, Cause::Proxy, &error)),
        }
    }

    /// The reward stands by now, so trouble here is no failure of the trial; the end of the job cleans up once more.
    async fn stop(&mut self, environment: Environment) {
        match tokio::time::timeout(STOP_TIMEOUT, environment.stop()).await {
            Ok(Ok(())) => self.log.line("environment removed"),
            Ok(Err(error)) => self.log.line(format!("environment not removed: {}", chain(&error))),
            Err(_) => self.log.line(format!("environment not removed within {STOP_TIMEOUT:?}")),
        }
    }

    fn finish(mut self) -> TrialOutcome {
        self.outcome.finished_at = Timestamp::now();
        let record = self.context.records.trial_result(&self.plan, &self.outcome);
        let written = crate::job_dir::write_json(&self.dir.result(), &record).and_then(|()| {
            let Some(failure) = &self.outcome.failure else { return Ok(()) };
            std::fs::write(self.dir.exception(), format!("{failure}\n"))
        });
        if let Err(error) = written {
            self.log.line(format!("result not written: {error}"));
            tracing::warn!(trial = %self.plan.name, %error, "cannot write a trial's result");
        }
        self.outcome
    }
}

fn verifier_failure(error: &VerifierError) -> TrialFailure {
    let cause = match error {
        VerifierError::Environment(_) => Cause::Environment,
        _ => Cause::Verifier(error.failure_cause()),
    };
    TrialFailure::from_error(Phase::Verifier, cause, error)
}
