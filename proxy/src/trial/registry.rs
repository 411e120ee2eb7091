//! All trials that this process knows, by name and by key.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use rolltap_rollout::ids::TrialId;

use crate::common::trial_key::{IdentityError, KeyHash, TrialKey};
use crate::trial::Trial;

/// The registry of trials.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    by_id: DashMap<TrialId, Arc<Trial>>,
    by_key: DashMap<KeyHash, Arc<Trial>>,
    /// The trials that were not sealed when they were last listed. Most of the others are sealed, and a periodic list of
    /// the open trials must not examine them all.
    unsealed: DashMap<TrialId, Arc<Trial>>,
}

/// A trial with this name exists already.
#[derive(Debug, thiserror::Error)]
#[error("there is a trial {0} already; a retry is a trial of its own, with a higher attempt")]
pub(crate) struct NameTaken(TrialId);

impl Trials {
    /// Adds a trial. Fails if its name is taken.
    pub(crate) fn add(&self, trial: Trial) -> Result<Arc<Trial>, NameTaken> {
        let trial = Arc::new(trial);
        match self.by_id.entry(trial.opened().facts.trial_id.clone()) {
            Entry::Occupied(taken) => return Err(NameTaken(taken.key().clone())),
            Entry::Vacant(free) => free.insert(Arc::clone(&trial)),
        };
        // Add the key only after the name proved to be new: a rejected trial must not be reachable.
        self.by_key.insert(trial.opened().key, Arc::clone(&trial));
        self.unsealed.insert(trial.opened().facts.trial_id.clone(), Arc::clone(&trial));
        Ok(trial)
    }

    /// Removes a trial that could not be stored, or is not stored any more. Its name is free again.
    pub(crate) fn remove(&self, trial: &Trial) {
        self.by_key.remove(&trial.opened().key);
        self.by_id.remove(&trial.opened().facts.trial_id);
        self.unsealed.remove(&trial.opened().facts.trial_id);
    }

    pub(crate) fn by_id(&self, id: &TrialId) -> Option<Arc<Trial>> {
        self.by_id.get(id).map(|trial| Arc::clone(&trial))
    }

    /// Returns whether this trial is registered, and not another one of its name.
    pub(crate) fn has(&self, trial: &Arc<Trial>) -> bool {
        self.by_id.get(&trial.opened().facts.trial_id).is_some_and(|known| Arc::ptr_eq(&known, trial))
    }

    /// Returns the trial whose agent sent this key.
    pub(crate) fn by_key(&self, key: &TrialKey) -> Result<Arc<Trial>, IdentityError> {
        self.by_key.get(&key.hash()).map(|trial| Arc::clone(&trial)).ok_or(IdentityError::Unknown)
    }

    /// Returns all trials that may make further calls, in no order.
    pub(crate) fn open(&self) -> Vec<Arc<Trial>> {
        self.unsealed.retain(|_, trial| !trial.sealed().is_cancelled());
        self.unsealed.iter().map(|trial| Arc::clone(&trial)).collect()
    }

    /// Returns the first `limit` trials by name, after `after` if given, and whether more trials follow.
    pub(crate) fn page(&self, after: Option<&TrialId>, limit: usize) -> (Vec<Arc<Trial>>, bool) {
        let is_behind = |id: &TrialId| after.is_none_or(|after| id > after);
        let behind = self.by_id.iter().filter(|entry| is_behind(entry.key()));
        let mut trials: Vec<_> = behind.map(|entry| Arc::clone(&entry)).collect();
        trials.sort_by(by_name);
        let has_more = trials.len() > limit;
        trials.truncate(limit);
        (trials, has_more)
    }

    /// Returns all trials, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Trial>> {
        let mut trials: Vec<_> = self.by_id.iter().map(|entry| Arc::clone(&entry)).collect();
        trials.sort_by(by_name);
        trials
    }
}

fn by_name(a: &Arc<Trial>, b: &Arc<Trial>) -> std::cmp::Ordering {
    a.opened().facts.trial_id.cmp(&b.opened().facts.trial_id)
}
