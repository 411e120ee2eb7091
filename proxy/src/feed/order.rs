//! In which order complete trials are handed out.
//!
//! Completions of trials and closings of groups take numbers of one sequence. A trial's place is made of such numbers, so
//! it is the same after a restart, and whatever comes later has a later place.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use rolltap_rollout::ids::TrialId;

use super::cursor::{Cursor, Release};

/// Every complete trial in both orders.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Order {
    last: u64,
    completions: BTreeMap<u64, TrialId>,
    releases: BTreeMap<Release, TrialId>,
}

impl Order {
    /// Of nothing that is left, when so many numbers were given.
    pub(crate) fn going_on(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// The last number that was given; 0 before the first.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// How many trials are complete.
    pub(crate) fn complete(&self) -> usize {
        self.completions.len()
    }

    /// A trial is complete. It is released at once where no group holds it back.
    pub(crate) fn completed(&mut self, sequence: u64, trial: &TrialId, is_held_back: bool) {
        self.last = self.last.max(sequence);
        self.completions.insert(sequence, trial.clone());
        if !is_held_back {
            self.releases.insert(Release { released: sequence, completed: sequence }, trial.clone());
        }
    }

    /// A group closed, and these completions of its trials are released with it.
    pub(crate) fn closed(&mut self, sequence: u64, completions: impl IntoIterator<Item = u64>) {
        self.last = self.last.max(sequence);
        for completed in completions {
            if let Some(trial) = self.completions.get(&completed) {
                self.releases.insert(Release { released: sequence, completed }, trial.clone());
            }
        }
    }

    /// A trial is gone: it was complete at that number, and released by the closing of its group if it has a closed one.
    pub(crate) fn gone(&mut self, completed: u64, closing: Option<u64>) {
        self.completions.remove(&completed);
        for released in closing.into_iter().chain([completed]) {
            self.releases.remove(&Release { released, completed });
        }
    }

    /// The trials behind `cursor` in its order.
    pub(crate) fn after(&self, cursor: Cursor) -> Box<dyn Iterator<Item = (Cursor, &TrialId)> + '_> {
        match cursor {
            Cursor::Completions(sequence) => {
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
