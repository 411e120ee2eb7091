//! Attempts at samples: which of them counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rolltap_rollout::ids::{GroupId, TaskId, TrialId};
use rolltap_rollout::rollout::TrialFacts;

/// What trials are attempts at: a sample of a group, or of a task where the trial has no group.
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

/// Every attempt at every sample.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Samples {
    /// Trials of one attempt: several only where no group says that there is one.
    attempts: HashMap<Sample, BTreeMap<u32, BTreeSet<TrialId>>>,
}

impl Samples {
    pub(crate) fn add(&mut self, sample: Sample, attempt: u32, trial: &TrialId) {
        self.attempts.entry(sample).or_default().entry(attempt).or_default().insert(trial.clone());
    }

    /// Takes back what was added.
    pub(crate) fn remove(&mut self, sample: &Sample, attempt: u32, trial: &TrialId) {
        let Some(attempts) = self.attempts.get_mut(sample) else { return };
        if let Some(trials) = attempts.get_mut(&attempt) {
            trials.remove(trial);
        }
        attempts.retain(|_, trials| !trials.is_empty());
        if attempts.is_empty() {
            self.attempts.remove(sample);
        }
    }

    /// Whether a later attempt counts instead of this one.
    pub(crate) fn is_superseded(&self, sample: &Sample, attempt: u32) -> bool {
        let last = self.attempts.get(sample).and_then(|attempts| attempts.keys().next_back());
        last.is_some_and(|&last| last > attempt)
    }

    /// The trials of the last attempt.
    pub(crate) fn counting<'a>(&'a self, sample: &Sample) -> impl Iterator<Item = &'a TrialId> + use<'a> {
        self.attempts.get(sample).and_then(|attempts| attempts.values().next_back()).into_iter().flatten()
    }

    /// The trials of every attempt.
    pub(crate) fn all<'a>(&'a self, sample: &Sample) -> impl Iterator<Item = &'a TrialId> + use<'a> {
        self.attempts.get(sample).into_iter().flat_map(BTreeMap::values).flatten()
    }

    /// A trial of exactly this attempt.
    pub(crate) fn of_attempt(&self, sample: &Sample, attempt: u32) -> Option<&TrialId> {
        self.attempts.get(sample)?.get(&attempt)?.first()
    }
}
