//! The submissions of a service and the progress of their groups. Pure: the caller writes the log.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;

use jiff::Timestamp;
use rolltap_proxy::SubmissionPage;
use rolltap_proxy::api::{Submission, SubmissionState, Submit, SubmittedGroup};
use rolltap_rollout::ids::{GroupId, SubmissionId};
use tokio_util::sync::CancellationToken;

use super::log::{GroupProgress, KEPT, SubmissionRecord, Submitted};
use super::pacing::Position;

/// A submission in the table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) submitted: Submitted,
    pub(super) state: SubmissionState,
    error: Option<String>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    /// In the order of `submitted.groups`.
    groups: Vec<Samples>,
    /// Stops the running trials of the submission.
    pub(super) stop: CancellationToken,
    /// The state in which the submission will end once its trials are stopped. `None` if nothing stops them.
    pub(super) stopping: Option<SubmissionState>,
}

/// The samples of a group.
#[derive(Clone, Debug, Default)]
struct Samples {
    running: u32,
    progress: GroupProgress,
    /// A valid reward of a sample.
    reward: Option<f64>,
    /// Whether another valid reward differs from it.
    is_varied: bool,
}

/// The end of a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SampleEnd {
    /// The cause of a failure that is not the agent's.
    pub(super) failure: Option<String>,
    /// The reward, if it is valid.
    pub(super) reward: Option<f64>,
}

/// The submissions of a service.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<SubmissionId, Entry>,
    /// The submissions that have not ended.
    active: BTreeSet<SubmissionId>,
    by_key: HashMap<String, SubmissionId>,
    /// The submission of each group that has not ended, and the index of the group in it.
    by_group: HashMap<GroupId, (SubmissionId, usize)>,
    /// The count of released groups. `None` without a budget of staleness.
    position: Option<Position>,
    /// The submissions that have ended, in the order of their end.
    ended: VecDeque<SubmissionId>,
}

impl Entry {
    fn new(submitted: Submitted, stop: CancellationToken) -> Self {
        Self {
            groups: vec![Samples::default(); submitted.groups.len()],
            submitted,
            state: SubmissionState::Queued,
            error: None,
            started_at: None,
            ended_at: None,
            stop,
            stopping: None,
        }
    }

    /// Returns the time at which the submission expires. `None` without a deadline.
    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        self.submitted.request.deadline?.after(self.submitted.at)
    }

    /// Returns the number of samples that have not begun, or wait for another attempt.
    fn queued(&self) -> u64 {
        if self.state.has_ended() || self.stopping.is_some() {
            return 0;
        }
        let groups = self.submitted.groups.iter().zip(&self.groups);
        groups.map(|(group, samples)| u64::from(samples.queued(group.samples))).sum()
    }

    /// Whether every group is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.groups.iter().all(Samples::is_closed)
    }

    /// Whether no sample of any group has begun.
    pub(super) fn is_untouched(&self) -> bool {
        self.groups.iter().all(|samples| samples.progress.begun.is_none())
    }

    /// Returns the groups that are not closed. Each has the policy version when its first sample began, if one has begun,
    /// and whether every sample has ended.
    pub(super) fn open_groups(&self) -> impl Iterator<Item = (&GroupId, Option<i32>, bool)> {
        let groups = self.submitted.groups.iter().zip(&self.groups);
        let open = groups.filter(|(_, samples)| !samples.is_closed());
        open.map(|(group, samples)| {
            let version = samples.progress.begun.map(|(_, version)| version);
            (&group.group_id, version, samples.is_complete(group.samples))
        })
    }

    /// Whether nothing of the submission runs, so that it can end.
    pub(super) fn is_idle(&self) -> bool {
        self.groups.iter().all(|samples| samples.running == 0)
    }

    /// Returns the record of the end.
    pub(super) fn end(
        &self,
        state: SubmissionState,
        at: Timestamp,
        error: Option<String>,
    ) -> SubmissionRecord {
        let ids = self.submitted.groups.iter().map(|group| group.group_id.clone());
        let progress = self.groups.iter().map(|samples| samples.progress.clone());
        let (id, groups) = (self.submitted.id.clone(), ids.zip(progress).collect());
        SubmissionRecord::Ended { id, state, at, error, groups }
    }

    /// Returns the submission as the API shows it.
    pub(super) fn shown(&self) -> Submission {
        let is_over = self.state.has_ended();
        let groups = self.submitted.groups.iter().zip(&self.groups).map(|(group, samples)| SubmittedGroup {
            group_id: group.group_id.clone(),
            task_id: group.task_id.clone(),
            samples: group.samples,
            queued: if is_over { 0 } else { samples.queued(group.samples) },
            running: samples.running,
            ended: samples.progress.ended,
            failures: samples.progress.failures.clone(),
            began_at: samples.progress.begun.map(|(at, _)| at),
            waited_sec: samples
                .progress
                .begun
                .map(|(at, _)| at.duration_since(self.submitted.at).as_secs_f64()),
            began_at_version: samples.progress.begun.map(|(_, version)| version),
            closed_at: samples.progress.closed_at,
            dropped: samples.progress.dropped,
        });
        Submission {
            id: self.submitted.id.clone(),
            state: self.state,
            error: self.error.clone(),
            submitted_at: self.submitted.at,
            policy_version: self.submitted.policy_version,
            started_at: self.started_at,
            ended_at: self.ended_at,
            request: self.submitted.request.clone(),
            groups: groups.collect(),
        }
    }
}

impl Samples {
    /// Whether as many samples as the group has have ended.
    fn is_complete(&self, size: u32) -> bool {
        self.progress.ended >= size
    }

    fn is_closed(&self) -> bool {
        self.progress.closed_at.is_some()
    }

    fn queued(&self, size: u32) -> u32 {
        size.saturating_sub(self.running).saturating_sub(self.progress.ended)
    }
}

impl Table {
    /// Restores the table from the records of the log. `stop` stops the trials of all submissions.
    pub(super) fn of(records: Vec<SubmissionRecord>, stop: &CancellationToken) -> Self {
        let mut table = Self::default();
        for record in records {
            table.apply(record, stop);
        }
        table
    }

    /// Applies a record that is in the log.
    pub(super) fn apply(&mut self, record: SubmissionRecord, stop: &CancellationToken) {
        match record {
            SubmissionRecord::Submitted(submitted) => self.add(*submitted, stop.child_token()),
            SubmissionRecord::GroupBegun { id, group_id, policy_version, at } => {
                if let Some(samples) = self.samples(&group_id) {
                    samples.progress.begun.get_or_insert((at, policy_version));
                }
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.started_at.get_or_insert(at);
                    if entry.state == SubmissionState::Queued {
                        entry.state = SubmissionState::Running;
                    }
                }
            }
            SubmissionRecord::GroupClosed { group_id, at, dropped, .. } => {
                if let Some(samples) = self.samples(&group_id) {
                    samples.progress.closed_at.get_or_insert(at);
                    samples.progress.dropped = dropped;
                }
            }
            SubmissionRecord::Position(position) => self.position = Some(position),
            SubmissionRecord::Stopping { id, state } => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.stopping.get_or_insert(state);
                    entry.state = SubmissionState::Stopping;
                    entry.stop.cancel();
                }
            }
            SubmissionRecord::Ended { id, state, at, error, groups } => {
                self.end(&id, state, at, error, groups)
            }
        }
    }

    /// Adds a submission whose record is in the log. `stop` stops its trials.
    pub(super) fn add(&mut self, submitted: Submitted, stop: CancellationToken) {
        let id = submitted.id.clone();
        if let Some(key) = &submitted.request.idempotency_key {
            self.by_key.insert(key.clone(), id.clone());
        }
        for (index, group) in submitted.groups.iter().enumerate() {
            self.by_group.insert(group.group_id.clone(), (id.clone(), index));
        }
        self.active.insert(id.clone());
        self.entries.insert(id, Entry::new(submitted, stop));
    }

    fn end(
        &mut self,
        id: &SubmissionId,
        state: SubmissionState,
        at: Timestamp,
        error: Option<String>,
        mut groups: BTreeMap<GroupId, GroupProgress>,
    ) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        (entry.state, entry.ended_at, entry.error, entry.stopping) = (state, Some(at), error, None);
        for (group, samples) in entry.submitted.groups.iter().zip(&mut entry.groups) {
            samples.progress = groups.remove(&group.group_id).unwrap_or_default();
            samples.running = 0;
            self.by_group.remove(&group.group_id);
        }
        self.active.remove(id);
        self.ended.push_back(id.clone());
        if self.ended.len() > KEPT
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, id: &SubmissionId) {
        let key = self.entries.remove(id).and_then(|entry| entry.submitted.request.idempotency_key);
        if let Some(key) = key.filter(|key| self.by_key.get(key) == Some(id)) {
            self.by_key.remove(&key);
        }
    }

    /// Returns the submission with the request's idempotency key, and whether the request is equal. `None` without one.
    pub(super) fn repeated(&self, request: &Submit) -> Option<(&Entry, bool)> {
        let entry = self.entries.get(self.by_key.get(request.idempotency_key.as_ref()?)?)?;
        Some((entry, entry.submitted.request == *request))
    }

    /// Returns the number of samples that have not begun.
    pub(super) fn queued(&self) -> u64 {
        self.active().map(Entry::queued).sum()
    }

    pub(super) fn get(&self, id: &SubmissionId) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// Returns the submission of a group that has not ended.
    pub(super) fn of_group(&self, group: &GroupId) -> Option<&Entry> {
        self.entries.get(&self.by_group.get(group)?.0)
    }

    /// Returns the submissions that have not ended, the oldest first.
    pub(super) fn active(&self) -> impl Iterator<Item = &Entry> {
        self.active.iter().filter_map(|id| self.entries.get(id))
    }

    /// Returns a page of submissions, and whether more follow.
    pub(super) fn page(&self, page: &SubmissionPage) -> (Vec<Submission>, bool) {
        let after = page.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let entries =
            self.entries.range::<SubmissionId, _>((after, Bound::Unbounded)).map(|(_, entry)| entry);
        let mut wanted = entries.filter(|entry| !page.active || !entry.state.has_ended());
        let shown: Vec<_> = wanted.by_ref().take(page.limit.get()).map(Entry::shown).collect();
        (shown, wanted.next().is_some())
    }

    /// Returns the count of released groups, as the last record has it.
    pub(super) fn position(&self) -> Option<Position> {
        self.position
    }

    /// Notes that a sample of a group begins. Returns the submission if this is the first sample of the group.
    pub(super) fn begun(&mut self, group: &GroupId) -> Option<SubmissionId> {
        let samples = self.samples(group)?;
        samples.running += 1;
        let is_first = samples.progress.begun.is_none();
        self.by_group.get(group).filter(|_| is_first).map(|(id, _)| id.clone())
    }

    /// Notes that an attempt at a sample ended. `end` is `None` if another attempt follows or the sample was stopped.
    pub(super) fn attempt_ended(&mut self, group: &GroupId, end: Option<SampleEnd>) {
        let Some(samples) = self.samples(group) else { return };
        samples.running = samples.running.saturating_sub(1);
        if let Some(end) = end {
            samples.add(end);
        }
    }

    /// Notes a sample that ended in an earlier run of the service.
    pub(super) fn has_ended(&mut self, group: &GroupId, end: SampleEnd) {
        if let Some(samples) = self.samples(group) {
            samples.add(end);
        }
    }

    /// Whether every sample of a group has ended and the group is not closed.
    pub(super) fn is_to_be_closed(&self, group: &GroupId) -> bool {
        let found = self.by_group.get(group).and_then(|(id, index)| {
            let entry = self.entries.get(id)?;
            entry.submitted.groups.get(*index).zip(entry.groups.get(*index))
        });
        found.is_some_and(|(group, samples)| samples.is_complete(group.samples) && !samples.is_closed())
    }

    /// Whether all valid rewards of a group are equal, or none is valid.
    pub(super) fn is_uniform(&mut self, group: &GroupId) -> bool {
        self.samples(group).is_some_and(|samples| !samples.is_varied)
    }

    fn samples(&mut self, group: &GroupId) -> Option<&mut Samples> {
        let (id, index) = self.by_group.get(group)?;
        self.entries.get_mut(id)?.groups.get_mut(*index)
    }
}

impl Samples {
    fn add(&mut self, SampleEnd { failure, reward }: SampleEnd) {
        self.progress.ended += 1;
        if let Some(cause) = failure {
            *self.progress.failures.entry(cause).or_default() += 1;
        }
        if let Some(reward) = reward {
            self.is_varied |= *self.reward.get_or_insert(reward) != reward;
        }
    }
}

#[cfg(test)]
mod tests;
