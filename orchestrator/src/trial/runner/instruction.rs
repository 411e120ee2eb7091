//! Runs one instruction: the agent works, its results are collected, and the tests verify them. A trial has one
//! instruction, or one for each step of its task.

use std::time::Duration;

use rolltap_agent::terminal::Terminal;
use rolltap_proxy::api::TrialOpened;

use crate::environment::{Environment, LogDirs};
use crate::failure::{Cause, Phase, TrialFailure, environment_failure};
use crate::job_dir::TrialDir;
use crate::task::Task;
use crate::trial::{CANCEL_GRACE, Round, Timing, Trial, verdict_in_words};
use crate::verify::{self, Artifacts, Rewards, empty_for_tests};

/// One instruction of a trial.
pub(crate) struct Instruction<'a> {
    /// The task or step with the instruction and its tests.
    pub(crate) task: &'a Task,
    /// The directory for the results.
    pub(crate) dir: TrialDir,
    /// The step's name. `None` for a task without steps.
    pub(crate) step: Option<&'a str>,
    /// Whether this is the last instruction of the trial.
    pub(crate) is_last: bool,
}

/// Waits for the work. From the time limit on, `close` runs concurrently.
async fn closing<T>(
    limit: Option<Duration>,
    mut work: impl Future<Output = T> + Unpin,
    close: impl Future<Output = ()>,
) -> T {
    let Some(limit) = limit else { return work.await };
    match tokio::time::timeout(limit, &mut work).await {
        Ok(done) => done,
        Err(_) => tokio::join!(work, close).0,
    }
}

impl Trial<'_> {
    /// Runs one round. Removes the environment early if nothing needs it until the end of the trial.
    pub(crate) async fn round(
        &mut self,
        environment: &mut Option<Environment>,
        opened: &TrialOpened,
        instruction: &Instruction<'_>,
    ) -> Round {
        let mut round = Round::default();
        let Some(inside) = environment.as_ref() else { return round };
        self.prepare_rules(inside);
        let ticks = self.reference_of_processes(inside).await;
        let terminal = self.let_agent_work(inside, opened, instruction, &mut round).await;
        if instruction.is_last {
            self.seal(&mut round).await;
        }
        if let (Some(inside), true) = (environment.as_ref(), self.leaves_work_to_verify(instruction, &round))
        {
            self.check_task_files().await;
            // A separate environment has nothing of the agent but its artifacts.
            let since = round.agent_execution.map(|timing| timing.started_at);
            if let (Some(since), None) = (since, &instruction.task.separate_verifier) {
                Box::pin(self.inspect(inside, since, ticks)).await;
            }
        }
        Box::pin(self.judge(environment, instruction, &mut round)).await;
        // Programs that the agent left in its terminal are part of its work until the tests are over.
        drop(terminal);
        round
    }

    /// Records the first failure only, because later failures usually follow from it.
    fn fail_round(&self, round: &mut Round, failure: TrialFailure) {
        self.log.line(format!("failed: {failure}"));
        round.failure.get_or_insert(failure);
    }

    /// Returns the agent's terminal, if it had one.
    async fn let_agent_work(
        &mut self,
        environment: &Environment,
        opened: &TrialOpened,
        instruction: &Instruction<'_>,
        round: &mut Round,
    ) -> Option<Terminal> {
        let (task, logs) = (instruction.task, instruction.dir.agent());
        let ready = match Box::pin(self.set_up_agent(task, environment, opened, &logs)).await {
            Ok(ready) => ready,
            Err(failure) => {
                self.fail_round(round, failure);
                return None;
            }
        };
        if let Err(error) = environment.set_network(&task.network.agent).await {
            self.fail_round(round, environment_failure(Phase::Agent, &error));
            return None;
        }
        let cancel = self.plan.request.stop.child_token();
        let limit = self.plan.timeouts.agent(task.config.agent.timeout_sec);
        self.enter(Phase::Agent);
        let timing = Timing::start();
        let assignment = self.assignment(task, environment, opened, &logs, limit, &cancel);
        let work = Box::pin(self.plan.agent.spec.run(assignment, ready));
        // Stopping the programs in the environment takes a moment, in which the agent could send further calls.
        let close = async {
            if instruction.is_last {
                // An error is ignored here, because the trial is sealed once more after the round.
                drop(self.context.admin.seal(&self.plan.name).await);
            }
        };
        let work = closing(limit, work, close);
        let grace = async {
            let failure = self.ended(Phase::Agent).await;
            cancel.cancel();
            tokio::time::sleep(CANCEL_GRACE).await;
            failure
        };
        // An agent that hands in its results when it is stopped still counts as stopped.
        let (outcome, stopped) = tokio::select! {
            outcome = work => (outcome, self.has_ended(Phase::Agent)),
            failure = grace => (Default::default(), Some(failure)),
        };
        round.agent_execution = Some(timing.finish());
        round.agent_metadata = outcome.metadata;
        self.log.line("agent's time is over");
        if let Some(failure) = stopped.or(outcome.failure) {
            self.fail_round(round, failure);
        }
        outcome.terminal
    }

    /// Runs the tests if there is work to verify. Collects logs and artifacts in any case.
    async fn judge(
        &mut self,
        environment: &mut Option<Environment>,
        instruction: &Instruction<'_>,
        round: &mut Round,
    ) {
        let Some(inside) = environment.as_ref() else { return };
        let task = instruction.task;
        let artifacts = Artifacts::new(&task.config.artifacts, instruction.dir.artifacts());
        let logs = artifacts.of_logs(instruction.dir.logs());
        let collected = verify::collect(self, inside, task, &artifacts).await;
        let mut logs_came = true;
        let verifies = self.leaves_work_to_verify(instruction, round);
        match &task.separate_verifier {
            None if verifies => {
                self.enter(Phase::Verifier);
                let timing = Timing::start();
                let verdict = self.verify_here(inside, instruction, &logs).await;
                round.verifier = Some(timing.finish());
                if verdict.as_ref().is_err_and(|failure| !left_logs(failure)) {
                    logs_came = verify::download_logs(self, inside, &logs).await;
                }
                self.take_verdict(verdict, round);
            }
            Some(separate) if verifies => {
                logs_came = verify::download_logs(self, inside, &logs).await;
                // The agent's environment is not needed any more, and its resources are free for the verifier's.
                if instruction.is_last
                    && let Some(done) = environment.take()
                {
                    self.stop(done).await;
                }
                self.enter(Phase::Verifier);
                let timing = Timing::start();
                let verdict = Box::pin(verify::verify_apart(self, separate, task, &artifacts, &logs)).await;
                round.verifier = Some(timing.finish());
                self.take_verdict(verdict, round);
            }
            _ => logs_came = verify::download_logs(self, inside, &logs).await,
        }
        self.write_manifest(&artifacts, collected, logs_came);
    }

    /// Decides whether the tests run, by Harbor's rule. A task without steps is verified after two kinds of agent
    /// failure only: a timeout, and a program that failed. A step is verified after any failure except those that end
    /// the trial or belong to the agent's setup.
    fn leaves_work_to_verify(&self, instruction: &Instruction<'_>, round: &Round) -> bool {
        let trial_failed = self.outcome.failure.as_ref().is_some_and(|failure| failure.step.is_none());
        if self.plan.extras.without_verifier || trial_failed {
            return false;
        }
        match &round.failure {
            None => true,
            Some(failure) if failure.cause.ends_the_trial() || failure.phase == Phase::AgentSetup => false,
            Some(failure) => instruction.step.is_some() || failure.cause.leaves_work_to_verify(),
        }
    }

    fn take_verdict(&self, verdict: Result<Rewards, TrialFailure>, round: &mut Round) {
        match verdict {
            Ok(rewards) => {
                self.log.line(verdict_in_words(&rewards.rewards));
                round.verdict = Some(rewards);
            }
            Err(failure) => self.fail_round(round, failure),
        }
    }

    async fn verify_here(
        &self,
        environment: &Environment,
        instruction: &Instruction<'_>,
        logs: &LogDirs,
    ) -> Result<Rewards, TrialFailure> {
        // The files of an earlier step would be taken for those of this step.
        if instruction.step.is_some() {
            empty_for_tests(environment).await?;
        }
        verify::run_tests(self, environment, instruction.task, logs).await
    }
}

/// Returns whether the verifier got far enough to collect the logs.
fn left_logs(failure: &TrialFailure) -> bool {
    !matches!(failure.cause, Cause::Environment) && !failure.cause.ends_the_trial()
}
