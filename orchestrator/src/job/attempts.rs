//! The attempts of a job that have ended: which attempts count, and the order in which they are reported.

use std::collections::HashMap;

use rolltap_rollout::ids::GroupId;

use crate::trial::{TrialOutcome, TrialPlan};

/// The position of each sample in its job.
#[derive(Default)]
pub(super) struct Order {
    groups: HashMap<GroupId, usize>,
    samples: usize,
}

impl Order {
    /// Takes the job's groups, each represented by its first trial.
    pub(super) fn of(groups: &[TrialPlan]) -> Self {
        Self {
            groups: groups.iter().enumerate().map(|(at, plan)| (plan.group_id.clone(), at)).collect(),
            samples: groups.iter().map(|plan| plan.group_size as usize).sum(),
        }
    }

    /// The sort key of a trial: by group, then by sample, then by attempt.
    fn place(&self, trial: &TrialOutcome) -> (Option<usize>, u32, u32) {
        (self.groups.get(&trial.group_id).copied(), trial.sample_index, trial.attempt)
    }
}

/// The attempts that have ended.
pub(super) struct Attempts {
    order: Order,
    /// The last attempt at each sample that ended, from this run of the job and from earlier runs.
    done: Vec<TrialOutcome>,
    /// Attempts that a later attempt replaced. They do not count.
    superseded: Vec<TrialOutcome>,
    /// The number of failed attempts that another attempt followed, over all runs of the job.
    retries: u64,
}

impl Attempts {
    /// Starts with the results that earlier runs of the job left.
    pub(super) fn before(
        order: Order,
        done: Vec<TrialOutcome>,
        superseded: Vec<TrialOutcome>,
        retries: u64,
    ) -> Self {
        Self { order, done, superseded, retries }
    }

    /// The number of samples of all tasks together.
    pub(super) fn planned(&self) -> usize {
        self.order.samples
    }

    pub(super) fn done(&self) -> &[TrialOutcome] {
        &self.done
    }

    pub(super) fn retries(&self) -> u64 {
        self.retries
    }

    /// Adds an attempt that counts.
    pub(super) fn count(&mut self, outcome: TrialOutcome) {
        self.done.push(outcome);
    }

    /// Records that a failed attempt is superseded. The attempt that follows has already begun.
    pub(super) fn follow(&mut self, failed: TrialOutcome) {
        self.retries += 1;
        self.superseded.push(failed);
    }

    /// Returns all attempts in the job's order.
    pub(super) fn all(&self) -> Vec<&TrialOutcome> {
        let mut all: Vec<_> = self.done.iter().chain(&self.superseded).collect();
        all.sort_by_key(|trial| self.order.place(trial));
        all
    }

    /// Returns the attempts that count, in the job's order.
    pub(super) fn into_done(self) -> Vec<TrialOutcome> {
        let Self { order, mut done, .. } = self;
        done.sort_by_key(|trial| order.place(trial));
        done
    }
}
