//! Tracks the attempts at each sample, and which attempt counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use rolltap_rollout::rollout::TrialFacts;

/// The sample that an attempt belongs to: a sample of a group, or of a task if the trial has no group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sample {
    of: SampledFrom,
    index: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SampledFrom {
    Group(GroupId),
    Task(TaskId),
}

/// One trial as an attempt. The order is that of the opening times.
pub(crate) type Attempt = (Timestamp, TrialId);

impl Sample {
    pub(crate) fn of(facts: &TrialFacts) -> Self {
        match &facts.group_id {
            Some(group) => Self::of_group(group, facts.sample_index),
            None => Self { of: SampledFrom::Task(facts.task_id.clone()), index: facts.sample_index },
        }
    }

    pub(crate) fn of_group(group: &GroupId, index: u32) -> Self {
        Self { of: SampledFrom::Group(group.clone()), index }
    }
}

/// The standing of a trial among the attempts at its sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttemptStanding {
    /// A later attempt counts instead of this trial.
    pub(crate) superseded: bool,
    pub(crate) completed_at: Option<Timestamp>,
}

/// All attempts at all samples.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Samples {
    /// The trials of each sample by attempt number. A number has several trials only without a group, because a group
    /// accepts each attempt number once.
    attempts: HashMap<Sample, BTreeMap<u32, BTreeSet<Attempt>>>,
}

impl Samples {
    pub(crate) fn add(&mut self, sample: Sample, number: u32, attempt: Attempt) {
        self.attempts.entry(sample).or_default().entry(number).or_default().insert(attempt);
    }

    /// Removes an attempt that `add` inserted. Empty entries are removed too.
    pub(crate) fn remove(&mut self, sample: &Sample, number: u32, attempt: &Attempt) {
        let Some(attempts) = self.attempts.get_mut(sample) else { return };
        if let Some(trials) = attempts.get_mut(&number) {
            trials.remove(attempt);
        }
        attempts.retain(|_, trials| !trials.is_empty());
        if attempts.is_empty() {
            self.attempts.remove(sample);
        }
    }

    /// Whether an attempt with a higher number counts instead. Without a group, such an attempt must also be opened
    /// later: later epochs try the same task again, with attempt numbers from 0.
    pub(crate) fn is_superseded(&self, sample: &Sample, number: u32, attempt: &Attempt) -> bool {
        let Some(attempts) = self.attempts.get(sample) else { return false };
        // The last trial of each number is the latest, because attempts are ordered by opening time.
        let mut higher = attempts.range(number.saturating_add(1)..).filter_map(|(_, trials)| trials.last());
        match sample.of {
            SampledFrom::Group(_) => higher.next().is_some(),
            SampledFrom::Task(_) => higher.any(|last| last > attempt),
        }
    }

    /// Returns the trials of the highest attempt number.
    pub(crate) fn counting<'a>(&'a self, sample: &Sample) -> impl Iterator<Item = &'a TrialId> + use<'a> {
        let last = self.attempts.get(sample).and_then(|attempts| attempts.values().next_back());
        last.into_iter().flatten().map(|(_, trial)| trial)
    }

    /// Returns the trials of all attempts at the sample.
    pub(crate) fn all<'a>(&'a self, sample: &Sample) -> impl Iterator<Item = &'a TrialId> + use<'a> {
        let attempts = self.attempts.get(sample).into_iter().flat_map(BTreeMap::values).flatten();
        attempts.map(|(_, trial)| trial)
    }

    /// Returns the first trial with exactly this attempt number, or `None` if there is none.
    pub(crate) fn of_attempt(&self, sample: &Sample, number: u32) -> Option<&TrialId> {
        self.attempts.get(sample)?.get(&number)?.first().map(|(_, trial)| trial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(second: i64, trial: &str) -> Attempt {
        (Timestamp::from_second(second).unwrap(), TrialId::new(trial).unwrap())
    }

    #[test]
    fn without_a_group_an_attempt_supersedes_only_what_was_opened_before_it() {
        let task = Sample { of: SampledFrom::Task(TaskId::new("t").unwrap()), index: 0 };
        let mut samples = Samples::default();
        let (first, retry) = (attempt(1, "first"), attempt(2, "retry"));
        let (next, last) = (attempt(3, "next"), attempt(4, "last"));
        for (number, trial) in [(0, &first), (1, &retry), (0, &next)] {
            samples.add(task.clone(), number, trial.clone());
        }
        let superseded = |samples: &Samples| {
            [(0, &first), (1, &retry), (0, &next)]
                .map(|(number, trial)| samples.is_superseded(&task, number, trial))
        };
        assert_eq!(superseded(&samples), [true, false, false]);
        samples.add(task.clone(), 1, last.clone());
        assert_eq!(superseded(&samples), [true, false, true]);
        samples.remove(&task, 1, &last);
        assert_eq!(superseded(&samples), [true, false, false]);
    }

    #[test]
    fn in_a_group_the_number_alone_counts() {
        let sample = Sample::of_group(&GroupId::new("g").unwrap(), 0);
        let mut samples = Samples::default();
        let (retry, late) = (attempt(1, "retry"), attempt(2, "late"));
        samples.add(sample.clone(), 1, retry.clone());
        samples.add(sample.clone(), 0, late.clone());
        assert!(samples.is_superseded(&sample, 0, &late) && !samples.is_superseded(&sample, 1, &retry));
    }
}
