//! Locates the calls of each trial, so that a trial is read without the others.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use rolltap_rollout::ids::{CallId, GroupId, TrialId};

use crate::store::format::content::TrialNumber;
use crate::store::format::event::Completion;
use crate::store::format::segment::SegmentId;

/// How long a sealed trial waits for its reward, and a complete one for its group to close, before its retention
/// counts. The wait is limited, because many trials never get a reward, and many groups never close.
const PATIENCE: SignedDuration = SignedDuration::from_hours(24);

/// The position of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At {
    pub(crate) segment: SegmentId,
    /// The offset from the beginning of the segment, in bytes.
    pub(crate) offset: u64,
}

impl At {
    /// Returns the position that many bytes before this one, in the same segment. `None` if there is no such position.
    pub(crate) fn before(self, distance: u64) -> Option<Self> {
        Some(Self {
            segment: self.segment,
            offset: self.offset.checked_sub(distance).filter(|_| distance > 0)?,
        })
    }
}

/// The positions of all records, by trial and by segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    numbers: HashMap<TrialId, TrialNumber>,
    calls: HashMap<TrialNumber, Vec<At>>,
    /// Calls that are recorded as complete, but whose agents got an error instead of the answer.
    undelivered: HashMap<TrialNumber, HashSet<CallId>>,
    newest: u64,
    /// The trials that have a record in each segment.
    segments: BTreeMap<SegmentId, HashSet<TrialNumber>>,
    endings: HashMap<TrialNumber, TrialEnding>,
    /// The group of each trial that has one.
    groups_of: HashMap<TrialNumber, GroupId>,
    groups: HashMap<GroupId, GroupMembers>,
}

/// The trials of a group that are still stored.
#[derive(Clone, Debug, Default)]
struct GroupMembers {
    trials: HashSet<TrialNumber>,
    closed_at: Option<Timestamp>,
}

/// The seal and the completion of a trial.
#[derive(Clone, Copy, Debug)]
struct TrialEnding {
    sealed_at: Timestamp,
    /// `None` while the reward is missing.
    completion: Option<Completion>,
}

impl TrialEnding {
    /// Returns the time from which the retention counts. A trial of a group counts from the closing of the group,
    /// because a reader of closed groups gets the trial then.
    fn settled_at(self, group: Option<&GroupMembers>) -> Timestamp {
        let a_while_after = |at: Timestamp| at.saturating_add(PATIENCE).unwrap_or(Timestamp::MAX);
        let Some(completion) = self.completion else { return a_while_after(self.sealed_at) };
        let complete_at = completion.at.max(self.sealed_at);
        match group {
            None => complete_at,
            Some(GroupMembers { closed_at: Some(closed_at), .. }) => complete_at.max(*closed_at),
            Some(GroupMembers { closed_at: None, .. }) => a_while_after(complete_at),
        }
    }
}

impl Index {
    /// Returns the trial's number, and assigns the next number if the trial has none.
    pub(crate) fn number(&mut self, trial: &TrialId) -> TrialNumber {
        if let Some(&known) = self.numbers.get(trial) {
            return known;
        }
        let number = TrialNumber(self.newest + 1);
        self.is(trial.clone(), number);
        number
    }

    /// Returns the trial's number, or 0 if the trial has none.
    pub(crate) fn number_of(&self, trial: &TrialId) -> TrialNumber {
        self.numbers.get(trial).copied().unwrap_or_default()
    }

    /// Assigns a number to a trial.
    pub(crate) fn is(&mut self, trial: TrialId, number: TrialNumber) {
        self.numbers.insert(trial, number);
        self.is_used(number);
    }

    /// Marks a number as used. A number in a segment is never assigned again, even if its trial is unknown.
    pub(crate) fn is_used(&mut self, number: TrialNumber) {
        // Leftover records of a forgotten trial must not become those of a new trial.
        self.newest = self.newest.max(number.0);
    }

    /// Notes that a segment has a record of that trial.
    pub(crate) fn is_in(&mut self, segment: SegmentId, trial: TrialNumber) {
        // Number 0 is no trial, and must not retain the segment.
        if trial != TrialNumber::default() {
            self.segments.entry(segment).or_default().insert(trial);
        }
    }

    /// Notes the group of a trial.
    pub(crate) fn is_of_group(&mut self, trial: TrialNumber, group: &GroupId) {
        self.groups_of.insert(trial, group.clone());
        self.groups.entry(group.clone()).or_default().trials.insert(trial);
    }

    /// Notes that a group closed, with the event in that segment. The segment is only removed together with the group's
    /// trials, because a reader of closed groups cannot get them without the event.
    pub(crate) fn is_closed(&mut self, segment: SegmentId, group: &GroupId, at: Timestamp) {
        // A group whose trials are all forgotten needs no entry.
        let Some(members) = self.groups.get_mut(group) else { return };
        members.closed_at.get_or_insert(at);
        self.segments.entry(segment).or_default().extend(&members.trials);
    }

    pub(crate) fn is_sealed(&mut self, trial: TrialNumber, at: Timestamp) {
        self.endings.entry(trial).or_insert(TrialEnding { sealed_at: at, completion: None });
    }

    pub(crate) fn is_complete(&mut self, trial: TrialNumber, completion: Completion) {
        if let Some(ending) = self.endings.get_mut(&trial) {
            ending.completion = Some(completion);
        }
    }

    /// Returns the time from which the retention of a segment counts: the latest time of its trials. Returns `None`
    /// while one of its trials is open.
    pub(crate) fn settled(&self, segment: SegmentId) -> Option<Timestamp> {
        let trials = self.segments.get(&segment).into_iter().flatten();
        let group_of = |trial| self.groups.get(self.groups_of.get(trial)?);
        let settled =
            trials.map(|trial| self.endings.get(trial).map(|ending| ending.settled_at(group_of(trial))));
        // One open trial makes the result `None`. A segment without trials has been settled since the epoch.
        settled
            .collect::<Option<Vec<_>>>()
            .map(|settled| settled.into_iter().max().unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Returns the highest feed number of a trial in these segments, or 0 if no trial is complete.
    pub(crate) fn newest_completion(&self, segments: &[SegmentId]) -> u64 {
        let trials = segments.iter().filter_map(|segment| self.segments.get(segment)).flatten();
        let completions = trials.filter_map(|trial| self.endings.get(trial)?.completion);
        completions.map(|completion| completion.sequence).max().unwrap_or(0)
    }

    /// Returns the trials that have records in these segments.
    pub(crate) fn trials_in(&self, segments: &[SegmentId]) -> Vec<TrialId> {
        let numbers: HashSet<_> =
            segments.iter().filter_map(|segment| self.segments.get(segment)).flatten().collect();
        let named = self.numbers.iter().filter(|(_, number)| numbers.contains(number));
        named.map(|(name, _)| name.clone()).collect()
    }

    /// Removes trials and segments from the index.
    pub(crate) fn forget(&mut self, trials: &[TrialId], segments: &[SegmentId]) {
        for number in trials.iter().filter_map(|trial| self.numbers.remove(trial)).collect::<Vec<_>>() {
            self.calls.remove(&number);
            self.undelivered.remove(&number);
            self.endings.remove(&number);
            self.leave_group(number);
            self.segments.values_mut().for_each(|trials| {
                trials.remove(&number);
            });
        }
        self.segments.retain(|segment, _| !segments.contains(segment));
    }

    fn leave_group(&mut self, trial: TrialNumber) {
        let Some(group) = self.groups_of.remove(&trial) else { return };
        let Some(members) = self.groups.get_mut(&group) else { return };
        members.trials.remove(&trial);
        if members.trials.is_empty() {
            self.groups.remove(&group);
        }
    }

    /// Adds the position of a call.
    pub(crate) fn add_call(&mut self, trial: TrialNumber, at: At) {
        self.calls.entry(trial).or_default().push(at);
    }

    /// Notes that the agent of that call got an error instead of the answer.
    pub(crate) fn is_undelivered(&mut self, trial: TrialNumber, call: CallId) {
        self.undelivered.entry(trial).or_default().insert(call);
    }

    /// Returns the trial's calls whose agents got an error instead of the answer.
    pub(crate) fn undelivered(&self, trial: &TrialId) -> HashSet<CallId> {
        let number = self.numbers.get(trial);
        number.and_then(|number| self.undelivered.get(number)).cloned().unwrap_or_default()
    }

    /// Returns the positions of a trial's calls, in the order in which they ended.
    pub(crate) fn calls(&self, trial: &TrialId) -> Vec<At> {
        let number = self.numbers.get(trial);
        number.and_then(|number| self.calls.get(number)).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_waits_for_its_reward_keeps_its_segment_for_a_day() {
        let (segment, trial) = (SegmentId::NONE.next(), TrialNumber(1));
        let mut index = Index::default();
        index.is_in(segment, trial);
        assert_eq!(index.settled(segment), None, "it is open");
        let second = |second| Timestamp::from_second(second).unwrap();
        index.is_sealed(trial, second(100));
        assert_eq!(index.settled(segment), Some(second(100 + 24 * 3600)));
        assert_eq!(index.newest_completion(&[segment]), 0);
        index.is_complete(trial, Completion { sequence: 7, at: second(160) });
        assert_eq!(index.settled(segment), Some(second(160)));
        assert_eq!(index.newest_completion(&[segment]), 7);
    }

    #[test]
    fn a_complete_trial_waits_for_its_group_for_a_day_and_its_closing_stays_with_it() {
        let (early, late, group) = (SegmentId::NONE.next(), SegmentId::NONE.next().next(), "g".to_owned());
        let (one, other, group) = (TrialNumber(1), TrialNumber(2), GroupId::new(group).unwrap());
        let second = |second| Timestamp::from_second(second).unwrap();
        let mut index = Index::default();
        for (name, trial) in [("one", one), ("other", other)] {
            index.is(TrialId::new(name).unwrap(), trial);
            index.is_in(early, trial);
            index.is_of_group(trial, &group);
        }
        index.is_sealed(one, second(100));
        index.is_complete(one, Completion { sequence: 1, at: second(100) });
        assert_eq!(index.settled(early), None, "the other is open");
        index.is_sealed(other, second(200));
        index.is_complete(other, Completion { sequence: 2, at: second(200) });
        assert_eq!(index.settled(early), Some(second(200 + 24 * 3600)), "the group is open");
        index.is_closed(late, &group, second(300));
        assert_eq!((index.settled(early), index.settled(late)), (Some(second(300)), Some(second(300))));
        let mut gone = index.trials_in(&[late]);
        gone.sort();
        assert_eq!(gone.iter().map(TrialId::as_str).collect::<Vec<_>>(), ["one", "other"]);
        index.forget(&gone, &[late]);
        assert!(index.groups.is_empty() && index.groups_of.is_empty());
    }
}
