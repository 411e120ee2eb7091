//! The two orders in which readers get complete trials.
//!
//! Completions of trials and closings of groups take numbers from one sequence. A trial's place consists of such
//! numbers. So the place is the same after a restart, and a later event has a later place.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use rolltap_rollout::ids::TrialId;

use super::cursor::{Cursor, Release};

/// Every complete trial, in both orders.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Order {
    last: u64,
    completions: BTreeMap<u64, TrialId>,
    releases: BTreeMap<Release, TrialId>,
}

impl Order {
    /// Creates an empty order, in which the next number follows `last`.
    pub(crate) fn going_on(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// Returns the last number given, or 0 before the first.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Returns the number of complete trials.
    pub(crate) fn complete(&self) -> usize {
        self.completions.len()
    }

    /// Adds a complete trial. It is released at once, unless its group holds it back.
    pub(crate) fn completed(&mut self, sequence: u64, trial: &TrialId, is_held_back: bool) {
        self.last = self.last.max(sequence);
        self.completions.insert(sequence, trial.clone());
        if !is_held_back {
            self.releases.insert(Release { released: sequence, completed: sequence }, trial.clone());
        }
    }

    /// Releases these completions with the closing of their group.
    pub(crate) fn closed(&mut self, sequence: u64, completions: impl IntoIterator<Item = u64>) {
        self.last = self.last.max(sequence);
        for completed in completions {
            if let Some(trial) = self.completions.get(&completed) {
                self.releases.insert(Release { released: sequence, completed }, trial.clone());
            }
        }
    }

    /// Removes a trial. `completed` is the number of its completion, and `closing` that of its group if the group is
    /// closed.
    pub(crate) fn gone(&mut self, completed: u64, closing: Option<u64>) {
        self.completions.remove(&completed);
        // A trial that was late or has no group was released by its own completion.
        for released in closing.into_iter().chain([completed]) {
            self.releases.remove(&Release { released, completed });
        }
    }

    /// Returns the trials after `cursor`, in its order.
    pub(crate) fn after(&self, cursor: Cursor) -> Box<dyn Iterator<Item = (Cursor, &TrialId)> + '_> {
        match cursor {
            Cursor::Completions(sequence) => {
                // The cursor names a trial that the reader already has, so the range excludes it.
                let behind = self.completions.range((Excluded(sequence), Unbounded));
                Box::new(behind.map(|(&sequence, trial)| (Cursor::Completions(sequence), trial)))
            }
            Cursor::Releases(release) => {
                let behind = self.releases.range((Excluded(release), Unbounded));
                Box::new(behind.map(|(&release, trial)| (Cursor::Releases(release), trial)))
            }
        }
    }
}
