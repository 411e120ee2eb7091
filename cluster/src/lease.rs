//! The lease of a shard: at most one node at a time answers for it, and a node answers for at most one shard.
//!
//! A lease is an entry of the cluster's bucket. Its holder writes the entry again every second, and each write is
//! conditional on the revision before. Another node takes the lease when it has seen the same revision for [`TTL`] by its
//! own clock. The holder stops [`HELD_FOR`] after it *began* its last successful write, by its own clock. So both agree
//! without comparing their clocks, as long as these run at about the same speed. A process that was paused and wakes up is
//! stopped by the fencing of the log ([`crate::log`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::kv::{Entry, Operation};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use uuid::Uuid;

use crate::cluster::entry::{self, Written};
use crate::cluster::{Cluster, json};
use crate::objects::{ObjectStorage, SegmentArchive};

/// A lease whose entry does not change for this time can be taken.
pub const TTL: Duration = Duration::from_secs(5);
/// How long a holder relies on its last successful write. The difference to [`TTL`] covers clocks of different speed.
const HELD_FOR: Duration = Duration::from_secs(4);
/// The time between two writes of the holder.
const RENEW: Duration = Duration::from_secs(1);
/// The time between two looks at a lease that another node holds.
const LOOK: Duration = Duration::from_millis(250);
/// The time in which NATS must answer a write or a look.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A node of a cluster, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The identity of this process.
    pub id: Uuid,
    /// The URL at which other nodes reach the agent plane.
    pub agent_url: String,
    /// The URL at which other nodes reach the admin plane.
    pub admin_url: String,
}

/// The entry of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The number of times that the lease was taken.
    pub epoch: u64,
    /// `None` after the holder released the lease.
    pub holder: Option<Node>,
}

/// What a node knows about a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseView {
    /// NATS has not answered yet, or does not answer.
    Unknown,
    /// The latest entry. `None` if nobody has held the lease yet.
    Seen(Option<LeaseRecord>),
}

/// Whether this node may answer for the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// The lease is held.
    Held,
    /// NATS did not confirm the lease in time. The node must not answer until the state changes.
    Unconfirmed,
    /// Another node has the lease. This state is final.
    Lost(LeaseRecord),
}

/// Shows at each moment whether a lease is confirmed. A process that was paused and wakes up sees at once that it is not, before
/// any task of it runs.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    began: Instant,
    /// The milliseconds from `began` to the beginning of the last successful write.
    confirmed: Arc<AtomicU64>,
}

impl LeaseClock {
    fn new(began: Instant) -> Self {
        Self { began, confirmed: Arc::default() }
    }

    fn confirm(&self, at: Instant) {
        let millis = at.saturating_duration_since(self.began).as_millis();
        self.confirmed.store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether no other node can have taken the lease.
    pub fn is_confirmed(&self) -> bool {
        let confirmed = Duration::from_millis(self.confirmed.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(confirmed) < HELD_FOR
    }
}

/// A lease that this node holds. It is released when [`HeldLease::release`] is called, and expires otherwise.
#[derive(Debug)]
pub struct HeldLease {
    epoch: u64,
    state: watch::Receiver<LeaseState>,
    clock: LeaseClock,
    keeping: JoinHandle<()>,
    release: oneshot::Sender<()>,
}

impl HeldLease {
    /// The number of times that the lease was taken, with this one.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Shows whether the lease is confirmed, for each request.
    pub fn clock(&self) -> LeaseClock {
        self.clock.clone()
    }

    /// Follows the state of the lease.
    pub fn state(&self) -> watch::Receiver<LeaseState> {
        self.state.clone()
    }

    /// Releases the lease, so that another node can take it at once. The caller has stopped to answer for the shard.
    pub async fn release(self) {
        // The task has ended if the lease is lost.
        let _ = self.release.send(());
        let _ = self.keeping.await;
    }
}

/// The right of a node to take a lease. The leases of all shards share it, because a node takes one of them and no more.
#[derive(Clone, Debug, Default)]
pub struct Candidacy {
    is_spent: Arc<Mutex<bool>>,
}

/// Waits until this node has the lease of the shard. `view` shows the entry meanwhile, for nodes that forward to the holder.
/// `storage` has the closed segments of the shards, if there is object storage. Never returns if the candidacy is spent on
/// another lease.
pub async fn acquire(
    cluster: &Cluster,
    shard: u32,
    node: &Node,
    candidacy: &Candidacy,
    storage: Option<&ObjectStorage>,
    view: &watch::Sender<LeaseView>,
) -> HeldLease {
    let lease = LeaseEntry { cluster: cluster.clone(), key: format!("shard.{shard}"), node: node.clone() };
    let mut since = None;
    loop {
        match timeout(PATIENCE, lease.cluster.bucket().entry(lease.key.clone())).await {
            Ok(Ok(entry)) => {
                let record = entry.as_ref().and_then(record_of);
                view.send_if_modified(|view| replace(view, LeaseView::Seen(record.clone())));
                let revision = entry.as_ref().map_or(0, |entry| entry.revision);
                // The time begins again with each revision.
                let (_, began) = *since.insert(match since {
                    Some((seen, began)) if seen == revision => (seen, began),
                    _ => (revision, Instant::now()),
                });
                let is_released = record.as_ref().is_none_or(|record| record.holder.is_none());
                if is_released || began.elapsed() >= TTL {
                    let last = record.map_or(0, |record| record.epoch);
                    let epoch = last.max(archived_epoch(cluster, shard, storage).await) + 1;
                    if let Some(held) = candidacy.take(&lease, revision, epoch).await {
                        return held;
                    }
                    // If NATS elects a leader, the holder could not renew either. It gets the whole time again.
                    since = None;
                }
            }
            failed => {
                tracing::debug!(?failed, "the lease cannot be read");
                view.send_if_modified(|view| replace(view, LeaseView::Unknown));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the epoch of the holder that wrote the manifest last, or 0 if there is none or it cannot be read now. NATS may lose
/// the entry of a lease while its servers are killed. Its epochs would then begin at 1 again, and the manifest rejects holders
/// of earlier epochs.
async fn archived_epoch(cluster: &Cluster, shard: u32, storage: Option<&ObjectStorage>) -> u64 {
    let Some(storage) = storage else { return 0 };
    match timeout(PATIENCE, SegmentArchive::open(storage, cluster.id(), shard)).await {
        Ok(Ok(archive)) => archive.manifest().map_or(0, |manifest| manifest.epoch),
        // The holder reads the manifest next, and reports the error.
        failed => {
            tracing::debug!(?failed, "the epoch in object storage cannot be read");
            0
        }
    }
}

impl Candidacy {
    /// Takes the lease if its entry still has this revision and no other lease was taken.
    async fn take(&self, lease: &LeaseEntry, revision: u64, epoch: u64) -> Option<HeldLease> {
        // Another lease that is being taken comes first. Its result decides about this one.
        let mut is_spent = self.is_spent.lock().await;
        if *is_spent {
            return None;
        }
        let held = lease.take(revision, epoch).await?;
        *is_spent = true;
        Some(held)
    }
}

fn replace<T: PartialEq>(place: &mut T, value: T) -> bool {
    let is_other = *place != value;
    *place = value;
    is_other
}

/// Reads an entry. A deleted entry, or one that is no lease, counts as a lease that was never taken.
fn record_of(entry: &Entry) -> Option<LeaseRecord> {
    match entry.operation {
        Operation::Put => serde_json::from_slice(&entry.value)
            .inspect_err(
                |error| tracing::error!(%error, key = entry.key, "the entry of a lease cannot be read"),
            )
            .ok(),
        Operation::Delete | Operation::Purge => None,
    }
}

/// The entry of a lease, and the node that wants it.
#[derive(Clone, Debug)]
struct LeaseEntry {
    cluster: Cluster,
    key: String,
    node: Node,
}

impl LeaseEntry {
    /// Takes the lease if its entry still has this revision.
    async fn take(&self, revision: u64, epoch: u64) -> Option<HeldLease> {
        let began = Instant::now();
        let record = LeaseRecord { epoch, holder: Some(self.node.clone()) };
        let revision = match self.write(&record, revision).await {
            Ok(Written::Done(revision)) => revision,
            Ok(Written::Conflict) => return None,
            // The write may have succeeded although its answer was lost.
            Err(_) => self.own_revision(epoch).await?,
        };
        let (state, states) = watch::channel(LeaseState::Held);
        let (release, released) = oneshot::channel();
        let clock = LeaseClock::new(began);
        let shown = clock.clone();
        let keeper = Keeper { entry: self.clone(), epoch, revision, confirmed: began, clock, state };
        let keeping = self.cluster.spawn(keeper.run(released));
        Some(HeldLease { epoch, state: states, clock: shown, keeping, release })
    }

    /// Fails if the write may or may not have succeeded.
    async fn write(&self, record: &LeaseRecord, revision: u64) -> Result<Written, String> {
        entry::write(self.cluster.bucket(), &self.key, json(record), revision, PATIENCE).await
    }

    /// Returns the revision of the entry if it is this node's in this epoch.
    async fn own_revision(&self, epoch: u64) -> Option<u64> {
        let entry = timeout(PATIENCE, self.cluster.bucket().entry(self.key.clone())).await.ok()?.ok()??;
        let record = record_of(&entry)?;
        self.is_own(&record, epoch).then_some(entry.revision)
    }

    fn is_own(&self, record: &LeaseRecord, epoch: u64) -> bool {
        record.epoch == epoch && record.holder.as_ref().is_some_and(|holder| holder.id == self.node.id)
    }
}

/// Renews a lease.
#[derive(Debug)]
struct Keeper {
    entry: LeaseEntry,
    epoch: u64,
    revision: u64,
    /// When the last successful write began.
    confirmed: Instant,
    clock: LeaseClock,
    state: watch::Sender<LeaseState>,
}

impl Keeper {
    async fn run(mut self, mut released: oneshot::Receiver<()>) {
        let mut ticks = interval(RENEW);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                asked = &mut released => {
                    if asked.is_ok() {
                        self.release().await;
                    }
                    return;
                }
                _ = ticks.tick() => {}
            }
            let renewed = if self.confirmed.elapsed() < HELD_FOR {
                // A write may take long, and the state must change in time nevertheless.
                let in_time = timeout_at(self.confirmed + HELD_FOR, self.renew()).await;
                in_time.unwrap_or_default()
            } else {
                self.renew().await
            };
            match renewed {
                Some(other) => return self.is_now(LeaseState::Lost(other)),
                None if self.confirmed.elapsed() < HELD_FOR => self.is_now(LeaseState::Held),
                None => self.is_now(LeaseState::Unconfirmed),
            }
        }
    }

    fn is_now(&self, state: LeaseState) {
        self.state.send_if_modified(|current| replace(current, state));
    }

    /// Writes the entry again. Returns the entry of another node if that took the lease.
    async fn renew(&mut self) -> Option<LeaseRecord> {
        let began = Instant::now();
        let record = LeaseRecord { epoch: self.epoch, holder: Some(self.entry.node.clone()) };
        match self.entry.write(&record, self.revision).await {
            Ok(Written::Done(revision)) => {
                (self.revision, self.confirmed) = (revision, began);
                self.clock.confirm(began);
                None
            }
            // An earlier write of this node may have succeeded although its answer was lost.
            Ok(Written::Conflict) => self.look().await,
            Err(_) => None,
        }
    }

    /// Reads the entry after a conflict. Returns it if it is another node's.
    async fn look(&mut self) -> Option<LeaseRecord> {
        let read = timeout(PATIENCE, self.entry.cluster.bucket().entry(self.entry.key.clone())).await;
        let Ok(Ok(entry)) = read else { return None };
        // An entry that is gone was removed by an operator, and another node may have taken the lease.
        let gone = LeaseRecord { epoch: self.epoch, holder: None };
        let Some(entry) = entry else { return Some(gone) };
        match record_of(&entry) {
            Some(record) if self.entry.is_own(&record, self.epoch) => {
                self.revision = entry.revision;
                None
            }
            // A NATS server that is behind may answer a read. A later write shows who has the lease.
            Some(record) if record.epoch < self.epoch => None,
            other => Some(other.unwrap_or(gone)),
        }
    }

    async fn release(&self) {
        let record = LeaseRecord { epoch: self.epoch, holder: None };
        if !matches!(self.entry.write(&record, self.revision).await, Ok(Written::Done(_))) {
            tracing::warn!("the lease could not be released; another node takes it in {TTL:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_confirmed_for_some_seconds_after_each_write() {
        let clock = LeaseClock::new(Instant::now());
        let passes = |time| tokio::time::advance(time);
        passes(HELD_FOR / 2).await;
        assert!(clock.is_confirmed());
        let began = Instant::now();
        passes(HELD_FOR / 2).await;
        assert!(!clock.is_confirmed());
        // The write took long, and counts from its beginning.
        clock.confirm(began);
        assert!(clock.is_confirmed());
        passes(HELD_FOR / 2).await;
        assert!(!clock.is_confirmed());
    }
}
