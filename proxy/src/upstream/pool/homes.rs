//! The replica of each trial: where it opens, and until when it keeps that replica.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rolltap_rollout::call::Call;
use rolltap_rollout::ids::TrialId;

use super::{Home, Pool};
use crate::upstream::cache_admission;
use crate::upstream::cache_admission::conversations::Conversations;
use crate::upstream::cache_admission::ledger::CacheStatus;
use crate::upstream::replica::{Replica, ReplicaId};
use crate::upstream::session::UsedSessions;
use crate::upstream::session_end::SessionEnd;

impl Pool {
    /// Whether a trial may open beside the open ones. Its own replica is then the one where it fits.
    pub(in crate::upstream) fn admit(&self, trial: &TrialId, kind: &str) -> bool {
        let Some(cache) = &self.cache else { return true };
        let replicas = self.replicas();
        let eligible: Vec<_> =
            replicas.iter().filter(|replica| replica.takes_calls()).map(|replica| replica.id).collect();
        let chosen = cache.ledger().admit(trial, kind, &eligible);
        let replica = chosen.and_then(|id| replicas.into_iter().find(|replica| replica.id == id));
        let is_admitted = replica.is_some();
        if let Some(replica) = replica {
            self.settle(trial, replica);
        }
        is_admitted
    }

    /// Makes a replica the trial's own.
    pub(super) fn settle(&self, trial: &TrialId, replica: Arc<Replica>) {
        replica.trials.fetch_add(1, Ordering::Relaxed);
        let (sessions, conversations) = (UsedSessions::default(), Conversations::default());
        let home = Home { replica, sessions, conversations };
        // The trial may have had a replica that takes no calls, or that of a concurrent first call.
        if let Some(before) = self.homes.insert(trial.clone(), home) {
            self.leave(trial, before);
        }
    }

    /// Returns the state of a replica's KV cache, if trials are admitted by it.
    pub(crate) fn cache_status(&self, replica: ReplicaId) -> Option<CacheStatus> {
        self.cache.as_ref()?.ledger().status(replica)
    }

    /// Records the length of a trial's conversation after a call.
    pub(crate) fn call_ended(&self, records: &[Arc<Call>]) {
        let (Some(cache), Some(record)) = (&self.cache, records.first()) else { return };
        // A trial that was forgotten uses no cache any more.
        let Some(mut home) = self.homes.get_mut(&record.trial_id) else { return };
        let (call, server) = (cache_admission::of_call(records, &mut home.conversations), home.replica.id);
        // The lock of the home ends before that of the ledger begins.
        drop(home);
        if let Some(call) = call {
            cache.ledger().ended_call(&record.trial_id, server, call);
        }
    }

    /// Forgets the replica of a trial that makes no further call, and announces the end of its sessions.
    pub(crate) fn forget(&self, trial: &TrialId) {
        if let Some((_, home)) = self.homes.remove(trial) {
            self.leave(trial, home);
        }
        if let Some(cache) = &self.cache {
            cache.ledger().release(trial);
            cache.notify();
        }
    }

    fn leave(&self, trial: &TrialId, Home { replica, sessions, .. }: Home) {
        replica.trials.fetch_sub(1, Ordering::Relaxed);
        self.session_ends.add(SessionEnd { replica, trial: trial.clone(), sessions });
    }

    /// Returns the trial's own replica.
    pub(super) fn home(&self, trial: &TrialId) -> Option<Arc<Replica>> {
        self.homes.get(trial).map(|home| Arc::clone(&home.replica))
    }
}
