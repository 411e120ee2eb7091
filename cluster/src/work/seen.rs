//! What the watch of a job has delivered: the states of trials, and the heartbeats of workers. It has no I/O.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::kv::{Entry, Operation};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::key::TrialKey;
use super::queue::{Stored, stored};
use super::worker::{WorkerId, WorkerRecord};

/// The silence after which a worker is lost.
pub(super) const SILENCE: Duration = Duration::from_secs(20);
/// The time without an own heartbeat after which the view of all workers is too old to judge them.
const BLIND: Duration = Duration::from_secs(8);

/// The states of the trials of a job, and its workers.
#[derive(Debug)]
pub(super) struct Seen {
    job: Uuid,
    /// Distinguishes the heartbeats of this run of the coordinator from those of earlier runs.
    run: Uuid,
    trials: HashMap<TrialKey, watch::Sender<Option<Stored>>>,
    /// States of trials that are not watched yet.
    early: HashMap<TrialKey, Stored>,
    workers: HashMap<WorkerId, (WorkerRecord, Instant)>,
    /// When the watch delivered the first and the last heartbeat of this run. `None` before the first one: then the records
    /// of workers may be incomplete.
    own: Option<(Instant, Instant)>,
}

pub(super) fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    pub(super) fn new(job: Uuid) -> Self {
        let (trials, early, workers) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { job, run: Uuid::now_v7(), trials, early, workers, own: None }
    }

    /// Returns the key and the value of the heartbeat of this run. Its delivery shows that the watch is up to date.
    pub(super) fn own_heartbeat(&self) -> (String, Bytes) {
        (format!("{}=monitor", TrialKey::prefix(self.job)), self.run.to_string().into())
    }

    /// Takes an entry that the watch delivers.
    pub(super) fn take(&mut self, entry: &Entry) {
        let (own_key, own_value) = self.own_heartbeat();
        if entry.key == own_key {
            if entry.value == own_value {
                self.saw_itself(Instant::now());
            }
        } else if let Some(worker) = WorkerId::of_key(&entry.key) {
            let record = (entry.operation == Operation::Put)
                .then(|| serde_json::from_slice(&entry.value).ok())
                .flatten();
            self.saw_worker(worker, record, Instant::now());
        } else if let Some(key) = TrialKey::of_job(self.job, &entry.key) {
            self.saw_trial(key, stored(entry));
        }
    }

    fn saw_itself(&mut self, now: Instant) {
        if self.own.is_some_and(|(_, last)| now.duration_since(last) > BLIND) {
            // The watch was interrupted, and the heartbeats of workers with it. They get their whole time again.
            self.workers.values_mut().for_each(|(_, at)| *at = now);
        }
        self.own = Some((self.own.map_or(now, |(first, _)| first), now));
    }

    /// A worker without a record has left.
    fn saw_worker(&mut self, worker: WorkerId, record: Option<WorkerRecord>, now: Instant) {
        match record {
            Some(record) => drop(self.workers.insert(worker, (record, now))),
            None => drop(self.workers.remove(&worker)),
        }
    }

    fn saw_trial(&mut self, key: TrialKey, stored: Option<Stored>) {
        let Some(stored) = stored else { return drop(self.early.remove(&key)) };
        let Some(watched) = self.trials.get(&key) else { return drop(self.early.insert(key, stored)) };
        watched.send_if_modified(|current| {
            let is_newer = current.as_ref().is_none_or(|current| current.revision < stored.revision);
            if is_newer {
                *current = Some(stored);
            }
            is_newer
        });
    }

    /// Begins to watch a trial, whose entry was read.
    pub(super) fn watch(&mut self, key: &TrialKey, read: Option<Stored>) -> watch::Receiver<Option<Stored>> {
        let early = self.early.remove(key);
        let newest = [read, early].into_iter().flatten().max_by_key(|stored| stored.revision);
        let (sender, states) = watch::channel(newest);
        self.trials.insert(key.clone(), sender);
        states
    }

    /// Ends the watch of a trial.
    pub(super) fn forget(&mut self, key: &TrialKey) {
        self.trials.remove(key);
    }

    /// Returns the records of the workers that are not silent.
    pub(super) fn workers(&self) -> Vec<WorkerRecord> {
        let alive = self.workers.values().filter(|(_, at)| at.elapsed() <= SILENCE);
        alive.map(|(record, _)| record.clone()).collect()
    }

    /// Returns the trials whose workers are silent.
    pub(super) fn silent(&self) -> Vec<TrialKey> {
        let Some((first, last)) = self.own else { return Vec::new() };
        if last.elapsed() > BLIND {
            return Vec::new();
        }
        // A worker writes its first heartbeat before it claims a trial. One without a record was removed long ago.
        let heard = |worker| self.workers.get(&worker).map_or(first, |(_, at)| *at);
        let silent = self.trials.iter().filter(|(_, watched)| {
            let stored = watched.borrow();
            let holder = stored.as_ref().and_then(|stored| stored.state.holder());
            holder.is_some_and(|(worker, _)| heard(worker).elapsed() > SILENCE)
        });
        silent.map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::TrialState;

    fn key(trial: &str) -> TrialKey {
        TrialKey { job: Uuid::nil(), trial: trial.to_owned() }
    }

    fn running(worker: WorkerId, revision: u64) -> Option<Stored> {
        Some(Stored { state: TrialState::Running { worker, name: "w".to_owned() }, revision })
    }

    fn record() -> Option<WorkerRecord> {
        Some(WorkerRecord { name: "w".to_owned(), kinds: Vec::new(), slots: 1, running: 0, draining: false })
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_is_silent_only_if_its_worker_is_and_the_watch_is_not() {
        let mut seen = Seen::new(Uuid::nil());
        let (alive, dead) = (WorkerId::new(), WorkerId::new());
        let one = seen.watch(&key("one"), running(alive, 1));
        let two = seen.watch(&key("two"), running(dead, 2));
        tokio::time::advance(SILENCE * 2).await;
        assert_eq!(seen.silent(), [], "the watch has delivered nothing yet");
        seen.saw_worker(alive, record(), Instant::now());
        seen.saw_itself(Instant::now());
        assert_eq!(seen.silent(), [], "a worker has the whole time");
        for _ in 0..10 {
            tokio::time::advance(BLIND / 2).await;
            seen.saw_worker(alive, record(), Instant::now());
            seen.saw_itself(Instant::now());
        }
        assert_eq!(seen.silent(), [key("two")]);

        // NATS is away for a minute, for all of them.
        tokio::time::advance(SILENCE * 3).await;
        assert_eq!(seen.silent(), []);
        seen.saw_itself(Instant::now());
        assert_eq!(seen.silent(), [key("two")], "the other has its whole time again");
        tokio::time::advance(SILENCE).await;
        drop((one, two));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_has_the_newest_state_in_whatever_order_they_come() {
        let mut seen = Seen::new(Uuid::nil());
        let worker = WorkerId::new();
        seen.saw_trial(key("a"), running(worker, 5));
        let states = seen.watch(&key("a"), None);
        assert_eq!(states.borrow().as_ref().map(|stored| stored.revision), Some(5));
        seen.saw_trial(key("a"), running(worker, 4));
        assert_eq!(states.borrow().as_ref().map(|stored| stored.revision), Some(5));
        seen.saw_trial(key("a"), Some(Stored { state: TrialState::Withdrawn, revision: 6 }));
        assert_eq!(states.borrow().as_ref().map(|stored| stored.revision), Some(6));
        seen.forget(&key("a"));
        seen.saw_trial(key("a"), None);
        assert!(seen.early.is_empty());
    }
}
