//! Decides which trials are complete and which groups are closed, and derives the consequences. It has no clock, disk
//! or lock.
//!
//! Events are applied in the order of the store, after they are written. An opening is applied earlier, and withdrawn
//! if it cannot be written. Applying the stored events after a restart gives the same ledger.

mod reading;

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
pub(crate) use reading::Delivery;
use rolltap_rollout::ids::{GroupId, TrialId};

use super::group::Group;
use super::order::Order;
use super::refusal::OpenRefusal;
use super::schedule::{Deadline, Due, Schedule};
use crate::api::ClosingCause;
use crate::common::samples::{Sample, Samples};
use crate::common::seconds::Seconds;
use crate::store::{Completion, GroupClosed, Opened, RecoveredTrial};

/// Every trial and group, as far as completeness needs them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ledger {
    trials: HashMap<TrialId, Entry>,
    samples: Samples,
    groups: BTreeMap<GroupId, Group>,
    order: Order,
    agenda: Schedule,
    sealed: usize,
    closed_groups: usize,
    /// The highest number of a trial whose retention is over.
    forgotten_through: u64,
}

#[derive(Debug, PartialEq)]
struct Entry {
    sample: Sample,
    /// The number of the attempt.
    attempt: u32,
    opened_at: Timestamp,
    group: Option<GroupId>,
    reward_deadline: Option<Seconds>,
    sealed_at: Option<Timestamp>,
    is_rewarded: bool,
    completion: Option<Completion>,
}

/// The stored state of a trial, as far as completeness needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptTrial<'a> {
    pub(crate) opened: &'a Opened,
    pub(crate) sealed_at: Option<Timestamp>,
    pub(crate) is_rewarded: bool,
    pub(crate) completion: Option<Completion>,
}

impl<'a> KeptTrial<'a> {
    pub(crate) fn of(found: &'a RecoveredTrial) -> Self {
        Self {
            opened: &found.opened,
            sealed_at: found.sealed_at,
            is_rewarded: found.rewards.original.is_some(),
            completion: found.completion,
        }
    }
}

impl Ledger {
    /// Rebuilds the ledger from the store. Trials are in the order of opening, and groups in the order of closing. The
    /// last number given so far is `last_sequence`, and the highest number of a forgotten trial is `forgotten_through`.
    pub(crate) fn retold(
        trials: &[KeptTrial<'_>],
        closed_groups: &[GroupClosed],
        last_sequence: u64,
        forgotten_through: u64,
    ) -> Self {
        let order = Order::going_on(last_sequence);
        let mut ledger = Self { order, forgotten_through, ..Self::default() };
        trials.iter().for_each(|trial| ledger.opened(trial.opened));
        let completions = trials.iter().filter_map(|trial| Some((trial.opened, trial.completion?)));
        let mut completions: Vec<_> = completions.collect();
        completions.sort_by_key(|(_, completion)| completion.sequence);
        // Completions and closings are applied in the order of their numbers, as they happened.
        let mut closed_groups = closed_groups.iter().peekable();
        for (opened, completion) in completions {
            while let Some(closed) = closed_groups.next_if(|closed| closed.sequence < completion.sequence) {
                ledger.closed(closed.clone());
            }
            ledger.completed(&opened.facts.trial_id, completion);
        }
        closed_groups.for_each(|closed| ledger.closed(closed.clone()));
        // `sealed` schedules the completions that are still due, in the order of the seals.
        let sealed = trials.iter().filter_map(|trial| Some((trial.sealed_at?, trial)));
        let mut sealed: Vec<_> = sealed.collect();
        sealed.sort_by_key(|(at, _)| *at);
        let rewarded = trials.iter().filter(|trial| trial.is_rewarded);
        rewarded.for_each(|trial| ledger.rewarded(&trial.opened.facts.trial_id));
        sealed.into_iter().for_each(|(at, trial)| ledger.sealed(&trial.opened.facts.trial_id, at));
        ledger
    }

    /// Checks whether this trial may be opened.
    pub(crate) fn check(&self, opened: &Opened) -> Result<(), OpenRefusal> {
        let facts = &opened.facts;
        if facts.group_size == Some(0) {
            return Err(OpenRefusal::NoSamples);
        }
        let Some(group) = &facts.group_id else {
            let has_deadline = opened.group_deadline.is_some();
            return if has_deadline { Err(OpenRefusal::DeadlineOfNoGroup) } else { Ok(()) };
        };
        // The closing is due, although it is not written yet.
        if let Some(cause) = self.agenda.closes(group) {
            return Err(OpenRefusal::GroupClosed { group: group.clone(), cause });
        }
        self.groups.get(group).map_or(Ok(()), |known| known.check(group, opened))?;
        let (sample_index, attempt) = (facts.sample_index, facts.attempt);
        let taken = self.samples.of_attempt(&Sample::of(facts), attempt).cloned();
        taken.map_or(Ok(()), |trial| {
            Err(OpenRefusal::AttemptTaken { group: group.clone(), sample_index, attempt, trial })
        })
    }

    /// Adds a trial that is opened.
    pub(crate) fn opened(&mut self, opened: &Opened) {
        let facts = &opened.facts;
        let entry = Entry {
            sample: Sample::of(facts),
            attempt: facts.attempt,
            opened_at: opened.at,
            group: facts.group_id.clone(),
            reward_deadline: opened.reward_deadline,
            sealed_at: None,
            is_rewarded: false,
            completion: None,
        };
        self.samples.add(entry.sample.clone(), facts.attempt, (opened.at, facts.trial_id.clone()));
        self.trials.insert(facts.trial_id.clone(), entry);
        if let Some(group) = &facts.group_id {
            self.change_group(group, |known| known.add(opened));
        }
    }

    /// Removes trials whose retention is over. `through` is the highest number of such a trial, now or earlier.
    pub(crate) fn forgotten(&mut self, trials: &[TrialId], through: u64) {
        self.forgotten_through = through;
        for trial in trials {
            let Some(entry) = self.trials.get(trial) else { continue };
            let group = entry.group.as_ref().and_then(|id| self.groups.get_mut(id));
            if let Some(completion) = entry.completion {
                let closing = group.as_ref().and_then(|group| Some(group.closed.as_ref()?.sequence));
                if let (Some(id), None) = (&entry.group, closing) {
                    tracing::warn!(
                        %trial, group = %id,
                        "the retention of a complete trial is over while its group is open: readers of closed groups will \
                         get the group without it"
                    );
                }
                self.order.gone(completion.sequence, closing);
                group.into_iter().for_each(|group| group.complete = group.complete.saturating_sub(1));
            }
            self.withdrawn(trial);
        }
    }

    /// Removes a trial that could not be written, or whose retention is over.
    pub(crate) fn withdrawn(&mut self, trial: &TrialId) {
        let Some(entry) = self.trials.remove(trial) else { return };
        self.samples.remove(&entry.sample, entry.attempt, &(entry.opened_at, trial.clone()));
        self.agenda.completed(trial);
        self.agenda.wait_no_more(entry.reward_due_at(), Deadline::Reward(trial.clone()));
        self.sealed -= usize::from(entry.sealed_at.is_some());
        let Some(id) = entry.group else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        let samples = &self.samples;
        group.samples.retain(|&index| samples.all(&Sample::of_group(&id, index)).next().is_some());
        // A closed group stays, because it accepts no further trial.
        if group.samples.is_empty() && group.closed.is_none() {
            self.agenda.wait_no_more(group.deadline_at(), Deadline::Group(id.clone()));
            self.groups.remove(&id);
        } else {
            // An earlier attempt at the sample may count again, which may fill the group.
            self.close_if_full(&id);
        }
    }

    /// Notes that a trial was sealed. A repetition has no effect.
    pub(crate) fn sealed(&mut self, trial: &TrialId, at: Timestamp) {
        let Some(entry) = self.trials.get_mut(trial).filter(|entry| entry.sealed_at.is_none()) else {
            return;
        };
        entry.sealed_at = Some(at);
        self.sealed += 1;
        match (entry.is_rewarded, entry.completion) {
            // The deadline of the reward counts from the seal.
            (false, _) => self.agenda.wait(entry.reward_due_at(), Deadline::Reward(trial.clone())),
            (true, None) => self.agenda.complete(trial),
            (true, Some(_)) => {}
        }
        if let Some(group) = entry.group.clone() {
            self.change_group(&group, |group| group.sealed(at));
        }
    }

    /// Notes that a trial's reward was set, or will not come. A repetition has no effect.
    pub(crate) fn rewarded(&mut self, trial: &TrialId) {
        let Some(entry) = self.trials.get_mut(trial).filter(|entry| !entry.is_rewarded) else { return };
        entry.is_rewarded = true;
        self.agenda.wait_no_more(entry.reward_due_at(), Deadline::Reward(trial.clone()));
        if entry.sealed_at.is_some() && entry.completion.is_none() {
            self.agenda.complete(trial);
        }
    }

    /// Notes that a trial is complete.
    pub(crate) fn completed(&mut self, trial: &TrialId, completion: Completion) {
        self.agenda.completed(trial);
        let Some(entry) = self.trials.get_mut(trial).filter(|entry| entry.completion.is_none()) else {
            return;
        };
        entry.completion = Some(completion);
        let id = entry.group.clone();
        let group = id.as_ref().and_then(|id| self.groups.get_mut(id));
        // Readers of closed groups get the trial when the group closes.
        let is_held_back = group.as_ref().is_some_and(|group| group.holds_trials_back());
        group.into_iter().for_each(|group| group.complete += 1);
        self.order.completed(completion.sequence, trial, is_held_back);
        id.iter().for_each(|id| self.close_if_full(id));
    }

    /// Schedules the closing of a group by a call. Returns false if there is no such group.
    pub(crate) fn close(&mut self, group: &GroupId, cause: ClosingCause) -> bool {
        let known = self.groups.get(group);
        if known.is_some_and(|known| known.closed.is_none()) {
            self.agenda.close(group, cause);
        }
        known.is_some()
    }

    /// Notes that a group is closed.
    pub(crate) fn closed(&mut self, closed: GroupClosed) {
        let (id, sequence) = (closed.group_id.clone(), closed.sequence);
        if self.groups.get(&id).is_some_and(|group| group.closed.is_some()) {
            return;
        }
        self.agenda.closed(&id);
        self.change_group(&id, |group| group.closed = Some(closed));
        self.closed_groups += 1;
        let is_dropped = self.groups.get(&id).is_some_and(Group::holds_trials_back);
        let completions: Vec<_> = self.completions_of(&id).filter(|_| !is_dropped).collect();
        self.order.closed(sequence, completions);
    }

    /// Returns the next consequence to write.
    pub(crate) fn due(&self, now: Timestamp) -> Option<Due> {
        self.agenda.due(now)
    }

    /// Returns the time of the next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.agenda.next_deadline()
    }

    /// Whether another attempt counts instead of this trial.
    fn is_superseded(&self, trial: &TrialId, entry: &Entry) -> bool {
        self.samples.is_superseded(&entry.sample, entry.attempt, &(entry.opened_at, trial.clone()))
    }

    /// Changes a group, and reschedules its deadline.
    fn change_group(&mut self, id: &GroupId, change: impl FnOnce(&mut Group)) {
        let group = self.groups.entry(id.clone()).or_default();
        let before = group.deadline_at();
        change(group);
        self.agenda.wait_no_more(before, Deadline::Group(id.clone()));
        let still_waits = group.closed.is_none();
        self.agenda.wait(group.deadline_at().filter(|_| still_waits), Deadline::Group(id.clone()));
    }

    fn completions_of(&self, group: &GroupId) -> impl Iterator<Item = u64> {
        let samples = self.groups.get(group).into_iter().flat_map(|group| &group.samples);
        let trials = samples.flat_map(|&index| self.samples.all(&Sample::of_group(group, index)));
        trials.filter_map(|trial| Some(self.trials.get(trial)?.completion?.sequence))
    }

    fn close_if_full(&mut self, id: &GroupId) {
        let Some(group) = self.groups.get(id).filter(|group| group.may_be_full()) else { return };
        let complete = self.sample_counts(id, group).complete;
        if group.size.is_some_and(|size| complete >= u64::from(size)) {
            self.agenda.close(id, ClosingCause::Size);
        }
    }
}

impl Entry {
    fn reward_due_at(&self) -> Option<Timestamp> {
        self.reward_deadline?.after(self.sealed_at?)
    }
}
