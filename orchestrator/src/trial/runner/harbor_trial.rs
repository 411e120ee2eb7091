//! Runs a trial by Harbor. rolltap opens, seals and rewards the trial, and Harbor does the rest.

use std::sync::Arc;
use std::time::Duration;

use rolltap_proxy::api::TrialOpened;
use serde_json::Value;
use tokio::time::timeout;

use crate::failure::{Cause, Phase, TrialFailure};
use crate::trial::runner::harbor::{
    Harbor, HarborPhase, HarborResult, HarborTrial, TrialEvent, add_to_record, failure,
};
use crate::trial::{Trial, TrialOutcome};

/// The time in which Harbor must save the results of a cancelled trial and remove its environment.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(60);

/// How a trial in Harbor's worker ended.
enum End {
    /// Harbor reported the end.
    Told(TrialEvent),
    /// The worker died during the trial.
    Died,
    /// The trial was cancelled and did not end in time.
    Stuck,
}

impl Trial<'_> {
    pub(crate) async fn run_by_harbor(mut self, harbor: Arc<Harbor>) -> TrialOutcome {
        if let Some(opened) = self.open().await {
            self.work_by_harbor(&harbor, &opened).await;
            self.seal_trial().await;
            if let Some(status) = self.outcome.status.clone() {
                let failure = self.outcome.failure.take();
                self.outcome.failure = self.weigh_blame(&status, failure);
            }
            self.look_at_returned(&opened).await;
            self.check_task_files().await;
            Box::pin(self.examine_commands(&opened)).await;
            self.put_reward().await;
        }
        self.finish()
    }

    async fn work_by_harbor(&mut self, harbor: &Harbor, opened: &TrialOpened) {
        let mut trial = match harbor.run(&self.plan, opened).await {
            Ok(trial) => trial,
            Err(error) => {
                let cause = Cause::EnvironmentStart;
                return self.fail(TrialFailure::from_error(Phase::EnvironmentSetup, cause, &error));
            }
        };
        let mut phase = Phase::EnvironmentSetup;
        let end = self.follow(&mut trial, &mut phase).await;
        let by_harbor = match end {
            End::Told(event) => {
                self.take_over(event, phase);
                true
            }
            End::Died => {
                let why = "the worker that drives harbor died under the trial";
                self.fail(TrialFailure::new(phase, Cause::Environment, why));
                false
            }
            End::Stuck => {
                self.log.line(format!("harbor did not end the trial within {} s", CANCEL_TIMEOUT.as_secs()));
                false
            }
        };
        // The tokens' record must not change during the steps that follow.
        self.seal_trial().await;
        match harbor.shut_down(self.plan.name.as_str(), by_harbor).await {
            Ok(()) => self.log.line("environment removed"),
            Err(error) => {
                self.log.line(format!("environment not removed: {}", crate::failure::chain(&error)))
            }
        }
    }

    /// Follows the trial to its end. Seals it at the end of the agent's time, and cancels it if the job stops or its
    /// deadline passes.
    async fn follow(&mut self, trial: &mut HarborTrial, phase: &mut Phase) -> End {
        let rounds = self.task.steps.len().max(1);
        let mut ended_rounds = 0;
        let mut is_cancelled = false;
        loop {
            let event = if is_cancelled {
                match timeout(CANCEL_TIMEOUT, self.context.cancellation.unless_hurried(trial.next())).await {
                    Ok(Some(event)) => event,
                    // A second Ctrl-C ends the wait as the timeout does.
                    Ok(None) | Err(_) => return End::Stuck,
                }
            } else {
                tokio::select! {
                    event = trial.next() => event,
                    failure = self.ended(*phase) => {
                        self.fail(failure);
                        trial.cancel();
                        is_cancelled = true;
                        continue;
                    }
                }
            };
            match event {
                None => return End::Died,
                Some(TrialEvent::Phase { phase: begun }) => *phase = self.begin(begun),
                Some(TrialEvent::AgentEnd) => {
                    ended_rounds += 1;
                    // A cancelled trial has no further round that could call the model.
                    if ended_rounds >= rounds || is_cancelled {
                        self.seal_trial().await;
                    }
                    trial.go();
                }
                Some(ended @ TrialEvent::Ended { .. }) => return End::Told(ended),
            }
        }
    }

    fn begin(&self, begun: HarborPhase) -> Phase {
        let phase = match begun {
            HarborPhase::Environment => Phase::EnvironmentSetup,
            HarborPhase::Agent => Phase::Agent,
            HarborPhase::Verification => Phase::Verifier,
        };
        self.log.line(format!("harbor begins phase {phase}"));
        self.enter(phase);
        phase
    }

    /// Adopts the result that Harbor wrote, and the exception that it could not write.
    fn take_over(&mut self, ended: TrialEvent, phase: Phase) {
        let TrialEvent::Ended { error, causes } = ended else { return };
        match HarborResult::read(&self.dir.result()) {
            Ok(Some(result)) => {
                // From here on rolltap only adds to Harbor's record.
                self.harbors_record = true;
                let came = result.told(&causes);
                self.outcome.environment_setup = came.environment_setup;
                self.outcome.agent_setup = came.agent_setup;
                self.outcome.steps = came.steps;
                self.outcome.take(came.round);
            }
            // The exception below explains the missing result.
            Ok(None) if error.is_some() => {}
            Ok(None) => {
                let why = "harbor ended the trial and wrote no result";
                self.fail(TrialFailure::new(phase, Cause::Internal, why));
            }
            Err(error) => {
                let why = format!("what harbor wrote of the trial cannot be read: {error}");
                self.fail(TrialFailure::new(phase, Cause::Internal, why));
            }
        }
        if let Some(raised) = error {
            self.fail(failure(phase, &raised.class, raised.message, &causes));
        }
    }

    /// Adds rolltap's values to the records that Harbor wrote, and changes nothing else in these.
    pub(crate) fn write_beside_harbor(&self) -> std::io::Result<()> {
        let records = &self.context.records;
        let own = |value: Value| value.get("rolltap").cloned().unwrap_or_default();
        add_to_record(&self.dir.config(), own(records.trial_config(&self.plan)))?;
        add_to_record(&self.dir.result(), own(records.trial_result(&self.plan, &self.outcome)))?;
        match &self.outcome.failure {
            Some(failure) if !self.dir.exception().exists() => {
                std::fs::write(self.dir.exception(), format!("{failure}\n"))
            }
            _ => Ok(()),
        }
    }
}
