//! Trials that have not begun. A group may have very many samples, so those behind the first are made into trials when
//! their turn comes.

use std::ops::Range;

use rolltap_rollout::ids::InvalidId;
use uuid::Uuid;

use super::plan;
use crate::trial::TrialPlan;

/// A trial that has not begun, and the samples of its group right behind it that nobody has tried yet.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) first: TrialPlan,
    /// By their index.
    behind: Range<u32>,
}

impl Stretch {
    /// A whole group, told by its first sample.
    pub(super) fn group(first: TrialPlan) -> Self {
        let behind = first.sample_index.saturating_add(1)..first.group_size;
        Self { first, behind }
    }

    /// One trial alone.
    pub(super) fn one(trial: TrialPlan) -> Self {
        let next = trial.sample_index.saturating_add(1);
        Self { first: trial, behind: next..next }
    }

    /// Takes in a sample that nobody has tried yet, if it is the next one of the group.
    pub(super) fn extend(&mut self, group: &TrialPlan, sample_index: u32) -> bool {
        let is_next = self.first.group_id == group.group_id && self.behind.end == sample_index;
        if is_next {
            self.behind.end = sample_index.saturating_add(1);
        }
        is_next
    }

    /// The first trial, and what is left.
    pub(super) fn split(self, job_id: Uuid) -> (TrialPlan, Option<Self>) {
        let Self { first, mut behind } = self;
        let next = behind.next().map(|sample| plan::trial(&first, job_id, sample, 0));
        // A group whose first trial has a name has one for each: they differ in the last letters alone.
        let left = next.and_then(Result::<_, InvalidId>::ok).map(|next| Self { first: next, behind });
        (first, left)
    }
}
