//! What all trials of a job share, and how the proxy is told of them where no trial does so itself.

use std::sync::Arc;

use jiff::Timestamp;
use rolltap_proxy::History;
use serde_json::{Map, Value};
use tokio::task::JoinError;

use super::config::RetryConfig;
use super::{Events, Place, resume};
use crate::admin_client::AdminClient;
use crate::cancellation::Cancellation;
use crate::environment::EnvironmentKind;
use crate::job_dir::{JobDir, Log, write_json};
use crate::records::Records;
use crate::trial::{Cause, Phase, TrialFailure, TrialOutcome, TrialPlan, chain};

/// What all trials of a job share.
pub(crate) struct JobContext {
    pub(crate) started_at: Timestamp,
    pub(crate) dir: JobDir,
    /// The job's, which trials have one each beside.
    pub(super) log: Log,
    pub(crate) place: Place,
    pub(crate) environment: EnvironmentKind,
    pub(crate) admin: AdminClient,
    pub(crate) history: Option<History>,
    pub(crate) sampling: Map<String, Value>,
    pub(crate) retry: RetryConfig,
    pub(crate) events: Arc<Events>,
    pub(crate) records: Records,
    pub(crate) cancellation: Cancellation,
}

impl JobContext {
    /// Tells the proxy the reward of a trial that is not running. It goes without where the proxy will not have it.
    pub(super) async fn put_reward(&self, outcome: &mut TrialOutcome) {
        match self.admin.put_reward(&outcome.name, &outcome.reward_to_put()).await {
            Ok(status) => outcome.status = Some(status),
            Err(error) => self.log.line(format!("reward of {} not put: {}", outcome.name, chain(&error))),
        }
    }

    /// Closes what the proxy has of a trial that did not come so far itself, if it has anything.
    pub(crate) async fn seal(&self, outcome: &mut TrialOutcome) {
        if let Ok(status) = self.admin.seal(&outcome.name).await {
            outcome.opened = true;
            outcome.status = Some(status);
        }
    }

    /// Ends what an earlier run of the job left open: its record at the proxy is closed, and says so, as does its folder.
    pub(super) async fn end_interrupted(&self, plan: &TrialPlan) -> TrialOutcome {
        let mut outcome = resume::interrupted(plan);
        self.seal(&mut outcome).await;
        self.keep(plan, &outcome);
        self.log.line(format!("{} was interrupted", plan.name));
        outcome
    }

    /// Ends a trial whose task died by a bug of ours: its record at the proxy is closed all the same. Its environment
    /// goes with the job's.
    pub(super) async fn bury(&self, plan: &TrialPlan, error: &JoinError) -> TrialOutcome {
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

    /// Writes the result of a trial that did not come so far itself.
    fn keep(&self, plan: &TrialPlan, outcome: &TrialOutcome) {
        let record = self.records.trial_result(plan, outcome);
        if let Err(error) = write_json(&self.dir.trial(&plan.name).result(), &record) {
            self.log.line(format!("cannot write the result of {}: {error}", plan.name));
        }
    }
}
