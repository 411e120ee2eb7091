//! The loop of a service: starts trials, records their ends, and answers requests, one event at a time.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rolltap_proxy::SubmissionRequest;
use rolltap_proxy::api::SubmissionState;
use rolltap_rollout::ids::{GroupId, SubmissionId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::groups::GroupGate;
use super::log::{SubmissionLog, SubmissionRecord};
use super::planner::GroupPlanner;
use super::requests::Planned;
use super::table::{Entry, SampleEnd, Table};
use super::{ServiceAddresses, ServiceError, ServiceReport, SubmissionLogError};
use crate::admin_client::AdminClient;
use crate::failure::chain;
use crate::job::dispatcher::{Dispatcher, TrialEnd, Wakeup};
use crate::job::parts::JobParts;
use crate::job::queue::NextTrial;
use crate::job::records::{JobProgress, Records};
use crate::job_dir::write_json;
use crate::trial::{TrialContext, TrialOutcome};

/// How long a closing waits for a proxy that cannot write. The loop waits too.
const CLOSING_PATIENCE: Duration = Duration::from_secs(1);

/// The number of submissions whose tasks are read at once. Further requests wait.
const PLANNED_AT_ONCE: usize = 16;

/// A running service.
pub(super) struct Service {
    pub(super) parts: JobParts,
    pub(super) context: Arc<TrialContext>,
    pub(super) dispatcher: Dispatcher,
    pub(super) records: Records,
    pub(super) table: Table,
    /// A thread of its own writes to the file, so that the trials do not wait for the disk.
    pub(super) log: Arc<Mutex<SubmissionLog>>,
    pub(super) planner: Arc<GroupPlanner>,
    pub(super) requests: mpsc::Receiver<SubmissionRequest>,
    /// Submissions whose tasks are being read.
    pub(super) planning: JoinSet<Planned>,
    pub(super) gate: GroupGate,
    /// The current policy version.
    pub(super) policy: watch::Receiver<i32>,
    pub(super) max_queued: u64,
    pub(super) admin: SocketAddr,
}

/// An event of the loop.
enum Event {
    Trial(Option<Wakeup>),
    Request(SubmissionRequest),
    Planned(Planned),
    /// The policy version changed.
    Policy,
    /// A deadline passed, or the service is to stop.
    Other,
}

impl Service {
    /// Returns where the service is reached.
    pub(super) fn addresses(&self) -> ServiceAddresses {
        ServiceAddresses {
            dir: self.context.dir.path().to_owned(),
            admin: self.admin,
            continued: self.table.active().count(),
        }
    }

    pub(super) fn stop_signal(&self) -> &CancellationToken {
        &self.context.cancellation.stop
    }

    /// Whether no further trial begins and no request is answered.
    fn is_ending(&self) -> bool {
        self.stop_signal().is_cancelled() || self.dispatcher.halted().is_some()
    }

    /// Runs until the service is to stop, or until a problem affects all trials.
    pub(super) async fn run(mut self) -> Result<ServiceReport, ServiceError> {
        // A submission may have expired while the service did not run.
        self.stop_expired().await;
        loop {
            self.start_trials().await;
            if self.is_ending() && self.dispatcher.running() == 0 {
                break;
            }
            match self.next_event().await {
                Event::Trial(Some(Wakeup::Ended(ended))) => {
                    let end = self.dispatcher.record(*ended).await;
                    self.trial_ended(end).await;
                }
                Event::Request(request) => self.answer(request).await,
                Event::Planned(planned) => self.take(planned).await,
                Event::Policy => self.policy_changed().await,
                Event::Trial(_) | Event::Other => {}
            }
            self.stop_expired().await;
            self.close_again().await;
        }
        self.shut_down().await
    }

    async fn next_event(&mut self) -> Event {
        let is_stopped = self.stop_signal().is_cancelled();
        let stop = self.stop_signal().clone();
        let due = self.next_deadline().into_iter().chain(self.gate.close_again_at()).min();
        let has_trials = self.dispatcher.has_work();
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            wakeup = self.dispatcher.next(), if has_trials => Event::Trial(wakeup),
            Some(planned) = self.planning.join_next() => match planned {
                Ok(planned) => Event::Planned(planned),
                // The client of a plan that panicked gets an error, because its answer is dropped.
                Err(error) => {
                    self.context.log.line(format!("a submission could not be planned: {error}"));
                    Event::Other
                }
            },
            // A halted service still answers, until its last trial has ended.
            Some(request) = self.requests.recv(), if !is_stopped && self.planning.len() < PLANNED_AT_ONCE => {
                Event::Request(request)
            }
            Ok(()) = self.policy.changed(), if !is_stopped => Event::Policy,
            () = due, if !is_stopped => Event::Other,
            () = stop.cancelled(), if !is_stopped => Event::Other,
            else => Event::Other,
        }
    }

    async fn start_trials(&mut self) {
        while let Some(NextTrial { plan, .. }) = self.dispatcher.next_to_start() {
            self.context.events.trial_started(&plan);
            self.sample_begins(&plan.group_id).await;
            self.dispatcher.start(plan);
            // Starting many trials takes a while, and requests must be answered meanwhile.
            tokio::task::yield_now().await;
        }
    }

    async fn trial_ended(&mut self, TrialEnd { mut outcome, next }: TrialEnd) {
        let group = outcome.group_id.clone();
        let Some(entry) = self.table.of_group(&group) else { return };
        let (id, is_stopping) = (entry.submitted.id.clone(), entry.stopping.is_some());
        match next {
            Some(next) => {
                self.table.attempt_ended(&group, None);
                self.dispatcher.try_again(next, outcome);
            }
            None if outcome.is_cancelled() || outcome.awaits_retry => {
                // Otherwise the next start of the service makes another attempt.
                if is_stopping {
                    self.settle_outcome(&mut outcome).await;
                }
                self.table.attempt_ended(&group, None);
            }
            None => {
                self.table.attempt_ended(&group, Some(end_of(&outcome)));
                if self.table.is_to_be_closed(&group) {
                    self.group_is_complete(&group).await;
                    self.release_groups().await;
                }
            }
        }
        self.end_if_over(&id).await;
    }

    /// Gives a stopped trial its reward, which is not valid, so that it is complete at the proxy.
    pub(super) async fn settle_outcome(&self, outcome: &mut TrialOutcome) {
        if outcome.opened {
            self.context.put_reward(outcome).await;
        }
    }

    /// Ends a submission if all of its groups are closed, or if it is stopped and nothing of it runs.
    pub(super) async fn end_if_over(&mut self, id: &SubmissionId) {
        let Some(entry) = self.table.get(id).filter(|entry| !entry.state.has_ended()) else { return };
        match entry.stopping {
            _ if entry.is_closed() => {
                let state = entry.stopping.unwrap_or(SubmissionState::Done);
                self.end(id, state, None).await;
            }
            // The closing of the last group comes back here.
            Some(_) if entry.is_idle() => {
                Box::pin(async {
                    self.close_stopped(id).await;
                    self.release_groups().await;
                })
                .await
            }
            _ => {}
        }
    }

    /// Records the end of a submission.
    pub(super) async fn end(&mut self, id: &SubmissionId, state: SubmissionState, error: Option<String>) {
        let Some(entry) = self.table.get(id) else { return };
        let record = entry.end(state, Timestamp::now(), error);
        self.context.log.line(format!("submission {id} ended: {state:?}"));
        self.write_or_apply(vec![record], true).await;
    }

    /// Stops submissions whose stop is recorded: no further sample of them begins, and the running ones are stopped.
    pub(super) async fn stop_trials(&mut self, ids: &[SubmissionId]) {
        let entries = ids.iter().filter_map(|id| self.table.get(id));
        let groups = entries.flat_map(|entry| &entry.submitted.groups).map(|group| group.group_id.clone());
        let groups: HashSet<GroupId> = groups.collect();
        let is_meant = |group: &GroupId| groups.contains(group);
        let waiting = self.gate.remove_waiting(is_meant).into_iter().map(|stretch| (stretch.first, None));
        let queued = self.dispatcher.queue.remove(is_meant).into_iter().map(|next| (next.plan, next.before));
        for (plan, before) in waiting.chain(queued).collect::<Vec<_>>() {
            // The attempts that these trials were to supersede count as they are.
            for (earlier, reward) in &plan.supersedes {
                if let Err(error) = self.context.admin.put_reward(earlier, reward).await {
                    self.context.log.line(format!("reward of {earlier} not put: {}", chain(&error)));
                }
            }
            if let Some(mut failed) = before {
                self.settle_outcome(&mut failed).await;
            }
        }
        self.end_untouched(ids).await;
        for id in ids {
            self.end_if_over(id).await;
        }
    }

    /// Ends those of these submissions of which no sample has begun. The proxy does not know their groups.
    async fn end_untouched(&mut self, ids: &[SubmissionId]) {
        let entries = ids.iter().filter_map(|id| self.table.get(id));
        let untouched = entries.filter(|entry| !entry.state.has_ended() && entry.is_untouched());
        let (now, cancelled) = (Timestamp::now(), SubmissionState::Cancelled);
        let ends = untouched.map(|entry| entry.end(entry.stopping.unwrap_or(cancelled), now, None));
        let ends: Vec<_> = ends.collect();
        if !ends.is_empty() {
            self.write_or_apply(ends, true).await;
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let live = self.table.active().filter(|entry| entry.stopping.is_none());
        let at = live.filter_map(Entry::expires_at).min()?;
        let left = at.duration_since(Timestamp::now()).try_into().unwrap_or_default();
        Instant::now().checked_add(left)
    }

    async fn stop_expired(&mut self) {
        let now = Timestamp::now();
        let is_due = |entry: &&Entry| {
            entry.stopping.is_none() && entry.expires_at().is_some_and(|expiry| expiry <= now)
        };
        let due: Vec<_> =
            self.table.active().filter(is_due).map(|entry| entry.submitted.id.clone()).collect();
        if !due.is_empty() {
            // Without a record, a restart finds again that they have expired.
            self.write_or_apply(stopping(&due, SubmissionState::Expired), true).await;
            self.stop_trials(&due).await;
        }
    }

    /// Returns the client for closing groups, which waits for a short time only.
    pub(super) fn closing_client(&self) -> AdminClient {
        self.context.admin.clone().waiting_for(CLOSING_PATIENCE)
    }

    /// Appends records of what has happened, and applies them also if they cannot be written. After a restart the service
    /// finds the same again.
    pub(super) async fn write_or_apply(&mut self, records: Vec<SubmissionRecord>, sync: bool) {
        if let Err(error) = self.append(records.clone(), sync).await {
            self.context.log.line(format!("the progress of a submission is not recorded: {}", chain(&error)));
        }
        self.apply(records);
    }

    fn apply(&mut self, records: Vec<SubmissionRecord>) {
        let stop = self.stop_signal().clone();
        records.into_iter().for_each(|record| self.table.apply(record, &stop));
    }

    /// Appends records to the log and applies them to the table. With `sync` they are durable when this returns.
    pub(super) async fn write(
        &mut self,
        records: Vec<SubmissionRecord>,
        sync: bool,
    ) -> Result<(), SubmissionLogError> {
        self.append(records.clone(), sync).await?;
        self.apply(records);
        Ok(())
    }

    /// Appends records to the log. With `sync` they are durable when this returns.
    pub(super) async fn append(
        &self,
        records: Vec<SubmissionRecord>,
        sync: bool,
    ) -> Result<(), SubmissionLogError> {
        let log = Arc::clone(&self.log);
        let written = tokio::task::spawn_blocking(move || {
            log.lock().unwrap_or_else(PoisonError::into_inner).append(&records, sync)
        });
        // An error here is a panic of the writer, or the end of the runtime.
        written.await.unwrap_or(Err(SubmissionLogError::Ended))
    }

    async fn shut_down(self) -> Result<ServiceReport, ServiceError> {
        let Self { parts, context, dispatcher, records, table, requests, planning, .. } = self;
        // Clients that wait get an error, because their answers are dropped.
        drop((requests, planning));
        let halted = dispatcher.halted().map(str::to_owned);
        let dir = context.dir.clone();
        let ended = records.job_result(&JobProgress {
            started_at: context.started_at,
            finished_at: Some(Timestamp::now()),
            planned: 0,
            running: 0,
            retries: 0,
            trials: &[],
        });
        let written = write_json(&dir.result(), &ended).err();
        let problems = written.map(|error| format!("cannot write {}: {error}", dir.result().display()));
        drop((dispatcher, context));
        let problems = parts.stop(problems.into_iter().collect()).await;
        match halted {
            Some(why) => Err(ServiceError::Halted(why)),
            None => Ok(ServiceReport { dir, problems, unfinished: table.active().count() }),
        }
    }
}

/// Returns the records of the stop of these submissions.
pub(super) fn stopping(ids: &[SubmissionId], state: SubmissionState) -> Vec<SubmissionRecord> {
    ids.iter().map(|id| SubmissionRecord::Stopping { id: id.clone(), state }).collect()
}

/// Returns the end of a sample that counts.
pub(super) fn end_of(outcome: &TrialOutcome) -> SampleEnd {
    let failure = outcome.failure.as_ref().filter(|_| outcome.failed_through_no_fault_of_the_agent());
    SampleEnd {
        failure: failure.map(|failure| failure.cause.name().to_owned()),
        reward: outcome.reward.filter(|_| outcome.reward_is_valid()),
    }
}
