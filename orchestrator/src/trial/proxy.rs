//! The proxy's record of a trial: opened before anything runs, sealed at the end of the agent's time, rewarded at the
//! end.

use jiff::Timestamp;
use rolltap_proxy::api::{OpenTrial, OpeningSecret, TrialOpened, TrialStatus};

use super::{Round, Trial, TrialContext, TrialPlan, spans};
use crate::admin_client::AdminError;
use crate::failure::{Cause, Phase, TrialFailure, chain};

impl TrialContext {
    /// Returns the request that opens a trial.
    fn opening(&self, plan: &TrialPlan) -> OpenTrial {
        OpenTrial {
            trial_id: Some(plan.name.clone()),
            idempotency_key: OpeningSecret::generate(),
            group_id: Some(plan.group_id.clone()),
            group_size: Some(plan.group_size),
            sample_index: plan.sample_index,
            attempt: plan.attempt,
            agent: Some(plan.agent.spec.name().to_owned()),
            model: plan.agent.model.clone(),
            history: self.history,
            environment: Some(self.environment.to_string()),
            sampling: plan.request.sampling.clone(),
            metadata: plan.request.metadata.clone(),
            hold_group: plan.request.hold_group,
            ..OpenTrial::of_task(plan.task_id.clone())
        }
    }

    /// Seals a trial that another process may open at any moment. A trial that the proxy does not know is opened first, so
    /// that nobody can open it later.
    pub(super) async fn seal_for_good(&self, plan: &TrialPlan) -> Result<TrialStatus, AdminError> {
        match self.admin.seal(&plan.name).await {
            Err(error) if error.is_of_an_unknown_trial() => {
                match self.admin.open_trial(&self.opening(plan)).await {
                    // The other process may have opened it in between.
                    Ok(_) | Err(AdminError::Refused { .. }) => self.admin.seal(&plan.name).await,
                    Err(error) => Err(error),
                }
            }
            sealed => sealed,
        }
    }
}

impl Trial<'_> {
    pub(super) async fn open(&mut self) -> Option<TrialOpened> {
        self.enter(Phase::Open);
        let plan = &self.plan;
        let trial = self.context.opening(plan);
        let span = self.context.tracer.as_ref().map(|tracer| spans::place(tracer, plan));
        match self.context.admin.open_trial_in(&trial, span).await {
            Ok(opened) => {
                self.outcome.opened = true;
                self.log.line(format!("trial opened at the proxy as {}", opened.trial_id));
                self.supersede().await;
                Some(opened)
            }
            Err(error) => {
                self.fail_at_proxy(Phase::Open, &error);
                // The request may have arrived although its answer did not, so the trial may be open.
                if error.may_have_had_effect() {
                    self.context.seal(&mut self.outcome).await;
                }
                if self.outcome.opened {
                    self.put_reward().await;
                }
                None
            }
        }
    }

    pub(super) fn fail_at_proxy(&mut self, phase: Phase, error: &AdminError) {
        let failure = TrialFailure::from_error(phase, Cause::Proxy, error);
        if error.is_of_an_absent_proxy() {
            self.outcome.halts.get_or_insert_with(|| failure.message.clone());
        }
        self.fail(failure);
    }

    /// Sets the rewards of earlier attempts at the sample, which no longer count.
    async fn supersede(&self) {
        for (earlier, reward) in &self.plan.supersedes {
            if let Err(error) = self.context.admin.put_reward(earlier, reward).await {
                self.log.line(format!("reward of {earlier} not put: {}", chain(&error)));
            }
        }
    }

    /// Ends the capture before any other step, so that a late call adds no token.
    pub(super) async fn seal(&mut self, round: &mut Round) {
        if let Some(status) = self.seal_trial().await {
            round.failure = self.weigh_blame(&status, round.failure.take());
        }
    }

    /// Seals the trial once. Returns `None` if it was sealed before, or if sealing failed.
    pub(super) async fn seal_trial(&mut self) -> Option<TrialStatus> {
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
                self.fail_at_proxy(Phase::Seal, &error);
                None
            }
        }
    }

    /// Decides whether a failure is the agent's own. An exit code does not show whether the model answered, but the
    /// proxy's status does.
    pub(super) fn weigh_blame(
        &self,
        status: &TrialStatus,
        failure: Option<TrialFailure>,
    ) -> Option<TrialFailure> {
        let calls = status.calls;
        let none_answered = calls.total > 0 && calls.complete == 0;
        match failure {
            None if none_answered => {
                let message = format!("the agent's {} model calls all failed", calls.total);
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

    /// Ends the trial's record, here and at the proxy, unless another attempt follows.
    pub(super) async fn put_reward(&mut self) {
        self.outcome.finished_at = Timestamp::now();
        self.outcome.awaits_retry = self.is_to_be_retried();
        // The result is written first, so that a trial that is complete at the proxy has a result even if this process
        // dies.
        let is_kept = self.record();
        if !is_kept || self.outcome.awaits_retry || self.outcome.is_cancelled() {
            return self.log.line("the reward waits for another attempt");
        }
        if self.context.leaves_rewards {
            return self.log.line("the job sets the reward");
        }
        self.send_reward().await;
    }

    /// Sets the reward at the proxy. The result is written already.
    pub(super) async fn send_reward(&mut self) {
        match self.context.admin.put_reward(&self.plan.name, &self.outcome.reward_to_put()).await {
            Ok(status) => self.outcome.status = Some(status),
            // The next run of the job sets the reward.
            Err(error) if error.is_of_an_absent_proxy() => {
                let problem =
                    format!("the reward of {} waits for the proxy: {}", self.plan.name, chain(&error));
                self.log.line(&problem);
                self.outcome.halts.get_or_insert(problem);
            }
            Err(error) => self.fail_at_proxy(Phase::Reward, &error),
        }
    }
}
