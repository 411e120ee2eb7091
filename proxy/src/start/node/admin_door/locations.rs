//! The shards of the trials that were asked for lately.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The largest number of trials that are remembered, with some 100 bytes each.
const LARGEST: usize = 100_000;

/// The shard of each trial that was opened or found here. A trial never moves to another shard.
#[derive(Debug, Default)]
pub(super) struct Locations(Mutex<HashMap<String, u32>>);

impl Locations {
    pub(super) fn of(&self, trial: &str) -> Option<u32> {
        self.lock().get(trial).copied()
    }

    pub(super) fn learn(&self, trial: &str, shard: u32) {
        let mut known = self.lock();
        // A forgotten trial is found again by asking all shards, so the simplest way to free memory suffices.
        if known.len() >= LARGEST {
            known.clear();
        }
        known.insert(trial.to_owned(), shard);
    }

    pub(super) fn forget(&self, trial: &str) {
        self.lock().remove(trial);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
