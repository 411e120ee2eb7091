//! The attempts at a job's samples that have ended: which of them count, and in which order they are told.

use std::collections::HashMap;

use rolltap_rollout::ids::GroupId;

use crate::trial::{TrialOutcome, TrialPlan};

/// The place of each sample in its job.
#[derive(Default)]
pub(super) struct Order {
    groups: HashMap<GroupId, usize>,
    samples: usize,
}

impl Order {
    /// Each group is told by its first trial.
    pub(super) fn of(groups: &[TrialPlan]) -> Self {
        Self {
            groups: groups.iter().enumerate().map(|(at, plan)| (plan.group_id.clone(), at)).collect(),
            samples: groups.iter().map(|plan| plan.group_size as usize).sum(),
        }
    }

    /// By group, by sample and, within one, by attempt.
    fn place(&self, trial: &TrialOutcome) -> (Option<usize>, u32, u32) {
        (self.groups.get(&trial.group_id).copied(), trial.sample_index, trial.attempt)
    }
}

/// The attempts that have ended.
pub(super) struct Attempts {
    order: Order,
    /// The last attempts at their samples, this run's and those before.
    done: Vec<TrialOutcome>,
    /// Attempts that do not count any more.
    superseded: Vec<TrialOutcome>,
    /// Attempts that failed and were followed by another, in all runs of the job.
    retries: u64,
}

impl Attempts {
    /// What earlier runs of the job left.
    pub(super) fn before(
        order: Order,
        done: Vec<TrialOutcome>,
        superseded: Vec<TrialOutcome>,
        retries: u64,
    ) -> Self {
        Self { order, done, superseded, retries }
    }

    /// Samples of all tasks together.
    pub(super) fn planned(&self) -> usize {
        self.order.samples
    }

    pub(super) fn done(&self) -> &[TrialOutcome] {
        &self.done
    }

    pub(super) fn done_mut(&mut self) -> &mut [TrialOutcome] {
        &mut self.done
    }

    pub(super) fn retries(&self) -> u64 {
        self.retries
    }

    /// An attempt is the one that counts.
    pub(super) fn count(&mut self, outcome: TrialOutcome) {
        self.done.push(outcome);
    }

    /// An attempt is followed by another, which has begun.
    pub(super) fn follow(&mut self, failed: TrialOutcome) {
        self.retries += 1;
        self.superseded.push(failed);
    }

    /// An attempt was given up by an earlier run of the job.
    pub(super) fn pass_over(&mut self, interrupted: TrialOutcome) {
        self.superseded.push(interrupted);
    }

    /// All of them, in the job's order.
    pub(super) fn all(&self) -> Vec<&TrialOutcome> {
        let mut all: Vec<_> = self.done.iter().chain(&self.superseded).collect();
        all.sort_by_key(|trial| self.order.place(trial));
        all
    }

    /// Those that count, in the job's order.
    pub(super) fn into_done(self) -> Vec<TrialOutcome> {
        let Self { order, mut done, .. } = self;
        done.sort_by_key(|trial| order.place(trial));
        done
    }
}
