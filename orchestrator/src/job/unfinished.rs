//! Ends trials that cannot end by themselves: interrupted trials, and those whose task panicked.

use tokio::task::JoinError;

use super::resume::{self, Remaining};
use crate::failure::{Cause, Phase, TrialFailure, chain};
use crate::job_dir::write_json;
use crate::trial::{TrialContext, TrialOutcome, TrialPlan};

impl TrialContext {
    /// Sets the reward of a trial that is not running. An error is only logged, because the job goes forward without
    /// it.
    pub(super) async fn put_reward(&self, outcome: &mut TrialOutcome) {
        match self.admin.put_reward(&outcome.name, &outcome.reward_to_put()).await {
            Ok(status) => outcome.status = Some(status),
            Err(error) => self.log.line(format!("reward of {} not put: {}", outcome.name, chain(&error))),
        }
    }

    /// Completes at the proxy what an earlier run left: sets the rewards that it lacks, and seals the trials that are open.
    /// Afterwards the interrupted trials are among the older ones.
    pub(super) async fn settle_left(&self, left: &mut Remaining) {
        // These trials ended while the proxy was unreachable, so they may still be open there.
        for outcome in left.older.iter_mut().filter(|outcome| !outcome.opened) {
            self.seal(outcome).await;
        }
        // A process may die between writing a result and setting its reward.
        for outcome in left.done.iter_mut().filter(|trial| trial.opened && !trial.is_complete_at_proxy()) {
            self.put_reward(outcome).await;
        }
        for plan in std::mem::take(&mut left.interrupted) {
            left.older.push(self.end_interrupted(&plan).await);
        }
    }

    /// Ends a trial that an earlier run of the job left open: seals it at the proxy, and writes its result to its
    /// folder.
    async fn end_interrupted(&self, plan: &TrialPlan) -> TrialOutcome {
        let mut outcome = resume::interrupted(plan);
        self.seal(&mut outcome).await;
        self.keep(plan, &outcome);
        self.log.line(format!("{} was interrupted", plan.name));
        outcome
    }

    /// Ends a trial whose task panicked, and seals it at the proxy. Its environment is removed at the end of the job.
    pub(super) async fn record_panic(&self, plan: &TrialPlan, error: &JoinError) -> TrialOutcome {
        let failure = TrialFailure::from_error(Phase::Agent, Cause::Internal, error);
        self.log.line(format!("{} died: {failure}", plan.name));
        let mut outcome = TrialOutcome::new(plan).failed(failure);
        outcome.awaits_retry = self.retry.wait(&outcome, plan.retries).is_some();
        self.seal(&mut outcome).await;
        self.keep(plan, &outcome);
        if outcome.opened && !outcome.awaits_retry {
            self.put_reward(&mut outcome).await;
        }
        outcome
    }

    /// Writes the result of a trial that did not write it itself.
    fn keep(&self, plan: &TrialPlan, outcome: &TrialOutcome) {
        let record = self.records.trial_result(plan, outcome);
        if let Err(error) = write_json(&self.dir.trial(&plan.name).result(), &record) {
            self.log.line(format!("cannot write the result of {}: {error}", plan.name));
        }
    }
}
