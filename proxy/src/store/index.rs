//! Where the calls of each trial lie, so that a trial is read without the others.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use rolltap_rollout::ids::TrialId;

use super::content::TrialNumber;
use super::segment::SegmentId;

/// Where a record begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct At {
    pub(super) segment: SegmentId,
    /// From the beginning of the segment, in bytes.
    pub(super) offset: u64,
}

impl At {
    /// So many bytes before it, in the same segment.
    pub(super) fn before(self, distance: u64) -> Option<Self> {
        Some(Self {
            segment: self.segment,
            offset: self.offset.checked_sub(distance).filter(|_| distance > 0)?,
        })
    }
}

/// Where everything lies.
#[derive(Debug, Default)]
pub(super) struct Index {
    numbers: HashMap<TrialId, TrialNumber>,
    calls: HashMap<TrialNumber, Vec<At>>,
    newest: u64,
    /// Which trials a segment has something of.
    segments: BTreeMap<SegmentId, HashSet<TrialNumber>>,
    sealed: HashMap<TrialNumber, Timestamp>,
}

impl Index {
    /// The number of a trial: the one that it has, or the next.
    pub(super) fn number(&mut self, trial: &TrialId) -> TrialNumber {
        if let Some(&known) = self.numbers.get(trial) {
            return known;
        }
        let number = TrialNumber(self.newest + 1);
        self.is(trial.clone(), number);
        number
    }

    /// The number of a trial that has one.
    pub(super) fn number_of(&self, trial: &TrialId) -> TrialNumber {
        self.numbers.get(trial).copied().unwrap_or_default()
    }

    /// Says which number a trial has.
    pub(super) fn is(&mut self, trial: TrialId, number: TrialNumber) {
        self.numbers.insert(trial, number);
        self.is_used(number);
    }

    /// A number that stands in a segment is never given again, also where nobody can tell whose it was.
    pub(super) fn is_used(&mut self, number: TrialNumber) {
        self.newest = self.newest.max(number.0);
    }

    /// A segment has something of that trial.
    pub(super) fn is_in(&mut self, segment: SegmentId, trial: TrialNumber) {
        if trial != TrialNumber::default() {
            self.segments.entry(segment).or_default().insert(trial);
        }
    }

    pub(super) fn is_sealed(&mut self, trial: TrialNumber, at: Timestamp) {
        self.sealed.insert(trial, at);
    }

    /// When the last of a segment's trials was sealed; none while one of them is open.
    pub(super) fn sealed(&self, segment: SegmentId) -> Option<Timestamp> {
        let trials = self.segments.get(&segment).into_iter().flatten();
        let sealed = trials.map(|trial| self.sealed.get(trial).copied());
        sealed
            .collect::<Option<Vec<_>>>()
            .map(|sealed| sealed.into_iter().max().unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// The trials that have something in these segments.
    pub(super) fn trials_in(&self, segments: &[SegmentId]) -> Vec<TrialId> {
        let numbers: HashSet<_> =
            segments.iter().filter_map(|segment| self.segments.get(segment)).flatten().collect();
        let named = self.numbers.iter().filter(|(_, number)| numbers.contains(number));
        named.map(|(name, _)| name.clone()).collect()
    }

    /// Forgets trials, and segments that are gone.
    pub(super) fn forget(&mut self, trials: &[TrialId], segments: &[SegmentId]) {
        for number in trials.iter().filter_map(|trial| self.numbers.remove(trial)).collect::<Vec<_>>() {
            self.calls.remove(&number);
            self.sealed.remove(&number);
            self.segments.values_mut().for_each(|trials| {
                trials.remove(&number);
            });
        }
        self.segments.retain(|segment, _| !segments.contains(segment));
    }

    /// A call of that trial lies there.
    pub(super) fn add_call(&mut self, trial: TrialNumber, at: At) {
        self.calls.entry(trial).or_default().push(at);
    }

    /// Where a trial's calls lie, in the order in which they ended.
    pub(super) fn calls(&self, trial: &TrialId) -> Vec<At> {
        let number = self.numbers.get(trial);
        number.and_then(|number| self.calls.get(number)).cloned().unwrap_or_default()
    }
}
