//! Answers the requests for submissions.

use std::time::Duration;

use jiff::Timestamp;
use rolltap_proxy::api::{Submission, SubmissionState, Submit};
use rolltap_proxy::{SubmissionRefusal, SubmissionRequest};
use rolltap_rollout::ids::SubmissionId;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::log::{GroupOfTask, Submitted};
use super::run::{Service, stopping};
use super::table::Entry;
use crate::failure::chain;
use crate::job::stretch::Stretch;
use crate::trial::TrialPlan;

/// The time after which a client of a full queue may ask again. A sample takes seconds at least.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A submission whose tasks were read.
pub(super) struct Planned {
    submitted: NewSubmission,
    /// The first trial of each group.
    groups: Result<Vec<TrialPlan>, SubmissionRefusal>,
}

/// A submission that is not accepted yet.
struct NewSubmission {
    id: SubmissionId,
    submit: Box<Submit>,
    policy_version: i32,
    /// Stops its trials.
    stop: CancellationToken,
    answer: oneshot::Sender<Result<Submission, SubmissionRefusal>>,
}

impl Service {
    pub(super) async fn answer(&mut self, request: SubmissionRequest) {
        // A client may have left, and then its answer is dropped.
        match request {
            SubmissionRequest::Submit { submit, policy_version, answer } => {
                self.plan(submit, policy_version, answer);
            }
            SubmissionRequest::Read { id, answer } => {
                drop(answer.send(self.table.get(&id).map(Entry::shown)));
            }
            SubmissionRequest::List { page, answer } => drop(answer.send(self.table.page(&page))),
            SubmissionRequest::Cancel { id, answer } => {
                let cancelled = self.cancel(|entry| entry.submitted.id == id).await;
                let shown = |_| self.table.get(&id).map(Entry::shown);
                drop(answer.send(cancelled.map(shown)));
            }
            SubmissionRequest::CancelVersion { version, answer } => {
                let cancelled = self.cancel(|entry| entry.submitted.policy_version == version).await;
                let shown = |ids: Vec<SubmissionId>| {
                    ids.iter().filter_map(|id| self.table.get(id)).map(Entry::shown).collect()
                };
                drop(answer.send(cancelled.map(shown)));
            }
        }
    }

    /// Cancels those submissions that have not ended, and returns them.
    async fn cancel(
        &mut self,
        is_meant: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<SubmissionId>, SubmissionRefusal> {
        let meant = self.table.active().filter(|entry| is_meant(entry));
        let ids: Vec<_> = meant.map(|entry| entry.submitted.id.clone()).collect();
        let is_new = |id: &&SubmissionId| self.table.get(id).is_some_and(|entry| entry.stopping.is_none());
        let new: Vec<_> = ids.iter().filter(is_new).cloned().collect();
        if !new.is_empty() {
            let recorded = self.write(stopping(&new, SubmissionState::Cancelled), true).await;
            recorded.map_err(|error| SubmissionRefusal::Unavailable(chain(&error)))?;
            self.stop_trials(&new).await;
        }
        Ok(ids)
    }

    /// Reads the tasks of a submission in the background, because they may be many.
    fn plan(
        &mut self,
        submit: Box<Submit>,
        policy_version: i32,
        answer: oneshot::Sender<Result<Submission, SubmissionRefusal>>,
    ) {
        let id = SubmissionId::generate();
        let stop = self.stop_signal().child_token();
        let submitted = NewSubmission { id, submit, policy_version, stop, answer };
        let Some(submitted) = self.unless_repeated(submitted) else { return };
        if let Err(refusal) = self.takes_more() {
            return drop(submitted.answer.send(Err(refusal)));
        }
        let planner = self.planner.clone();
        self.planning.spawn(async move {
            let groups = planner.plan(&submitted.submit, &submitted.id, submitted.stop.clone()).await;
            Planned { submitted, groups }
        });
    }

    /// Checks what does not depend on the tasks of a submission, before they are read.
    fn takes_more(&self) -> Result<(), SubmissionRefusal> {
        if let Some(why) = self.dispatcher.halted() {
            return Err(SubmissionRefusal::Unavailable(format!("the service is ending: {why}")));
        }
        self.check_room(1)
    }

    /// Answers a submission whose idempotency key is known, and returns any other.
    fn unless_repeated(&self, new: NewSubmission) -> Option<NewSubmission> {
        let answer = match self.table.repeated(&new.submit) {
            None => return Some(new),
            Some((entry, true)) => Ok(entry.shown()),
            Some((entry, false)) => Err(SubmissionRefusal::Conflict(format!(
                "idempotency_key belongs to submission {}, whose other fields differ: send the same fields, or another key",
                entry.submitted.id
            ))),
        };
        drop(new.answer.send(answer));
        None
    }

    /// Accepts a submission if the queue has room for it.
    pub(super) async fn take(&mut self, Planned { submitted, groups }: Planned) {
        // A request with the same key may have been accepted meanwhile.
        let Some(NewSubmission { id, submit, policy_version, stop, answer }) =
            self.unless_repeated(submitted)
        else {
            return;
        };
        let accepted = match groups.and_then(|groups| self.check_room(samples(&groups)).map(|()| groups)) {
            Ok(groups) => {
                let of_task = |plan: &TrialPlan| GroupOfTask {
                    group_id: plan.group_id.clone(),
                    task_id: plan.task_id.clone(),
                    samples: plan.group_size,
                };
                let submitted = Submitted {
                    id,
                    at: Timestamp::now(),
                    policy_version,
                    request: *submit,
                    groups: groups.iter().map(of_task).collect(),
                };
                self.accept(submitted, groups, stop).await
            }
            Err(refusal) => Err(refusal),
        };
        drop(answer.send(accepted));
    }

    /// Checks that the queue has room for this number of samples.
    fn check_room(&self, samples: u64) -> Result<(), SubmissionRefusal> {
        let (queued, most) = (self.table.queued(), self.max_queued);
        if samples > most {
            return Err(SubmissionRefusal::Invalid(format!(
                "the submission has {samples} samples, and the queue takes at most {most} (--max-queued): submit fewer \
                 samples or tasks at once"
            )));
        }
        if queued.saturating_add(samples) > most {
            let message = format!(
                "the queue has {queued} of at most {most} samples (--max-queued), and the submission has {samples}: submit it \
                 again when samples have begun"
            );
            return Err(SubmissionRefusal::Full { message, retry_after: RETRY_AFTER });
        }
        Ok(())
    }

    async fn accept(
        &mut self,
        submitted: Submitted,
        groups: Vec<TrialPlan>,
        stop: CancellationToken,
    ) -> Result<Submission, SubmissionRefusal> {
        let (id, priority) = (submitted.id.clone(), submitted.request.priority);
        self.record_submitted(submitted, stop)
            .await
            .map_err(|error| SubmissionRefusal::Unavailable(chain(&error)))?;
        for group in groups {
            self.gate.wait(group.group_id.clone(), vec![Stretch::group(group)], priority);
        }
        self.admit_groups();
        let lost = || SubmissionRefusal::Unavailable("the submission is not known any more".to_owned());
        self.table.get(&id).map(Entry::shown).ok_or_else(lost)
    }
}

fn samples(groups: &[TrialPlan]) -> u64 {
    groups.iter().map(|plan| u64::from(plan.group_size)).sum()
}
