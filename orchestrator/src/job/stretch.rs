//! Trials that have not begun. A group may have many samples, so the plan of each is made only when it may start.

use std::ops::Range;

use rolltap_rollout::ids::InvalidId;
use uuid::Uuid;

use super::plan;
use crate::trial::TrialPlan;

/// A trial that has not begun, and the untried samples of its group that directly follow it.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) first: TrialPlan,
    /// The indexes of these samples.
    behind: Range<u32>,
}

impl Stretch {
    /// Makes a stretch of a whole group from its first sample.
    pub(super) fn group(first: TrialPlan) -> Self {
        let behind = first.sample_index.saturating_add(1)..first.group_size;
        Self { first, behind }
    }

    /// Makes a stretch of a single trial.
    pub(super) fn one(trial: TrialPlan) -> Self {
        let next = trial.sample_index.saturating_add(1);
        Self { first: trial, behind: next..next }
    }

    /// Appends an untried sample if it is the next of the group. Returns whether it was appended.
    pub(super) fn extend(&mut self, group: &TrialPlan, sample_index: u32) -> bool {
        let is_next = self.first.group_id == group.group_id && self.behind.end == sample_index;
        if is_next {
            self.behind.end = sample_index.saturating_add(1);
        }
        is_next
    }

    /// Returns the first trial, and the rest of the stretch.
    pub(super) fn split(self, job_id: Uuid) -> (TrialPlan, Option<Self>) {
        let Self { first, mut behind } = self;
        let next = behind.next().map(|sample| plan::trial(&first, job_id, sample, 0));
        // The names in a group differ only in their tails, so if the first is valid, all are.
        let left = next.and_then(Result::<_, InvalidId>::ok).map(|next| Self { first: next, behind });
        (first, left)
    }
}
