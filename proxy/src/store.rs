//! The capture store: an append-only log of calls and events. An event is on disk before its caller is notified.
//!
//! The log is a sequence of segments of records with checksums. A call reserves its places in the queue before it goes
//! upstream ([`Store::reserve_call`]). So its record can always be handed over, also from a `Drop`, and a slow disk
//! slows new calls instead of filling memory. On a disk error the store rejects new calls ([`health`]) and loses no
//! accepted call.
//!
//! The write path is `write::group_commit` → `write::log` → `write::encoder` → `format::content` → `format::record`. A
//! batch that takes long goes through the thread of `write::writer` to the log.
//! On the read path, `read::recovery` finds every trial and the positions of its calls, and `read::reader` reads the
//! calls.

mod format;
mod health;
mod lock;
mod open;
mod read;
mod replica;
mod retention;
mod summary;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use format::conversation::{PromptMaker, StoredConversation};
pub use format::event::PolicyChange;
pub(crate) use format::event::{CallEntry, Completion, Event, GroupClosed, Opened};
pub use format::note::{CallNote, CallNoteKind, Pause};
pub(crate) use health::{Health, Part};
pub(crate) use open::OpenedStore;
pub use read::archive::{Archive, Damage, ReadError, Stored, StoredTrial, TrialOutline, read_dir};
pub use read::follower::ArchiveFollower;
pub(crate) use read::recovery::RecoveredTrial;
pub use replica::{ArchiveSettings, RestoreError};
pub(crate) use replica::{Restored, ShardEpoch};
pub use retention::Retention;
use rolltap_rollout::ids::TrialId;
pub(crate) use summary::completion_tokens;
pub use summary::{CauseOfModel, Summary};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
pub use write::fsync::SyncPolicy;

use self::format::event::ReadCall;
use self::format::segment::SegmentId;
use self::read::index::Index;
use self::read::reader::Reader;

/// Whether the directory has segments of captures.
pub fn is_data_dir(path: &Path) -> bool {
    format::segment::list(path).is_ok_and(|segments| !segments.is_empty())
}

/// Returns the name of the file of a segment in a data directory.
pub fn segment_file_name(number: u32) -> String {
    SegmentId::of_number(number).file_name()
}

/// Returns the numbers of the segments in a data directory, in order. Empty if the directory does not exist.
///
/// # Errors
/// The directory cannot be read.
pub fn segment_numbers(path: &Path) -> io::Result<Vec<u32>> {
    Ok(format::segment::list(path)?.into_iter().map(SegmentId::number).collect())
}

/// The maximum number of calls in flight. Further calls wait.
const CALLS: usize = 8192;

/// The capacity of the queue: entries that are reserved or wait for the writer. Each call in flight always gets both of
/// its places, and some places remain for other events.
const PLACES: usize = 2 * CALLS + 1024;

/// The reason why the store cannot write, read or be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// A write to the data directory failed, or the store could not be started.
    #[error("the capture store cannot write to {path}: {reason}")]
    Write {
        /// The file or directory.
        path: String,
        /// The error message of the operating system.
        reason: String,
    },
    /// The data directory cannot be read.
    #[error(transparent)]
    Read(#[from] Arc<ReadError>),
    /// Another process uses the data directory.
    #[error("{path} is in use by another rolltap{by}: stop that one, or give another --data")]
    InUse {
        /// The data directory.
        path: String,
        /// The process that holds the lock, as ` (process 1234)`. Empty if it is unknown.
        by: String,
    },
    /// The replicated log of the cluster does not take records at present.
    #[error("the capture store cannot write to the log of the cluster in NATS: {0}")]
    Replicate(String),
    /// NATS did not confirm in time that this node still holds its shard.
    #[error("NATS does not confirm that this node holds its shard; it takes no calls until it does")]
    LeaseUnconfirmed,
    /// Another node holds the shard.
    #[error("another node of the cluster has taken over the shard of this one: {0}")]
    TakenOver(String),
    /// The proxy is shutting down.
    #[error("the capture store is closed")]
    Closed,
    /// A thread of the store has ended, although the process still runs.
    #[error("the capture store has ended by a defect: nothing can be captured until the proxy is restarted")]
    WriterEnded,
}

/// A handle to the store. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    queue: mpsc::Sender<Entry>,
    /// One permit per call in flight.
    calls: Arc<Semaphore>,
    health: Health,
    index: Arc<Mutex<Index>>,
    dir: Arc<Path>,
}

/// The durability and the retention of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// When written records also survive the death of the machine.
    pub sync: SyncPolicy,
    /// When the captures of sealed trials are removed.
    pub retention: Retention,
}

/// Trials that the store forgets, because their retention is over.
#[derive(Debug)]
pub(crate) struct Forgotten {
    pub(crate) trials: Vec<TrialId>,
    /// The highest feed number of any forgotten trial, now or earlier. 0 if no such trial was complete.
    pub(crate) through: u64,
}

/// The threads of the store, which `finish` joins.
#[derive(Debug)]
pub(crate) struct StoreThread {
    writer: std::thread::JoinHandle<Result<(), StoreError>>,
    syncer: std::thread::JoinHandle<()>,
    is_ending: EndOnPurpose,
    queue: mpsc::Sender<Entry>,
    /// The lock of the data directory. It is released after the threads have ended.
    _lock: lock::DirLock,
}

/// Tells the threads of the store, once it is dropped, that their end is no failure. A start that fails drops it before the
/// queue ends.
#[derive(Debug)]
struct EndOnPurpose(Arc<AtomicBool>);

impl Drop for EndOnPurpose {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An entry of the store's queue.
#[derive(Debug)]
enum Entry {
    /// An event to write, and the channel that reports the result.
    Keep { event: Event, kept: oneshot::Sender<Result<(), StoreError>> },
    /// Closes the queue to new reservations. Places that are already reserved stay usable.
    Finish,
}

/// A reserved place in the queue.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    permit: mpsc::OwnedPermit<Entry>,
    /// The permit of the call whose record takes this place. `None` for intents and other events.
    _call: Option<OwnedSemaphorePermit>,
}

/// The two places of a call, or of another operation that is written twice.
#[derive(Debug)]
pub(crate) struct CallSlots {
    /// For the event that is written before the operation begins.
    pub(crate) intent: QueueSlot,
    /// For the outcome of the operation.
    pub(crate) record: QueueSlot,
}

/// Resolves with `Ok` once the event survives the death of this process.
pub(crate) type Durable = oneshot::Receiver<Result<(), StoreError>>;

/// Flattens the result of a [`Durable`]. A dropped sender means that the store is closed.
pub(crate) fn outcome(
    kept: Result<Result<(), StoreError>, oneshot::error::RecvError>,
) -> Result<(), StoreError> {
    kept.unwrap_or(Err(StoreError::Closed))
}

impl Store {
    /// Reserves a place in the queue, and waits while the queue is full. Fails if the store cannot write.
    pub(crate) async fn reserve(&self) -> Result<QueueSlot, StoreError> {
        self.health.admit().await?;
        let permit = self.queue.clone().reserve_owned().await.map_err(|_| StoreError::Closed)?;
        Ok(QueueSlot { permit, _call: None })
    }

    /// Reserves both places of a call, and waits while too many calls are in flight. Fails if the store cannot write.
    pub(crate) async fn reserve_call(&self) -> Result<CallSlots, StoreError> {
        // One permit covers both places: calls that each held one place and waited for a second could deadlock.
        let call = Arc::clone(&self.calls).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let intent = self.reserve().await?;
        Ok(CallSlots { intent, record: QueueSlot { _call: Some(call), ..self.reserve().await? } })
    }

    /// Writes an event, and returns once it is written.
    pub(crate) async fn append(&self, event: Event) -> Result<(), StoreError> {
        outcome(self.reserve().await?.append(event).await)
    }

    /// Writes an event without waiting for its record. The event is lost if the store cannot write.
    pub(crate) async fn note(&self, event: Event) {
        if let Ok(place) = self.reserve().await {
            drop(place.append(event));
        }
    }

    /// The health of the store, for parts outside of it.
    pub(crate) fn health(&self) -> Health {
        self.health.clone()
    }

    /// Returns the reason if the store cannot write.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.health.check()
    }

    /// Resolves with the reason when the store can never write again, even if the disk recovers.
    pub(crate) async fn ended(&self) -> StoreError {
        self.health.ended().await
    }

    /// Reads a trial's calls from disk, in the order in which they ended. Skips and logs unreadable calls.
    pub(crate) async fn calls(&self, trial: &TrialId) -> Vec<CallEntry> {
        let read = self.read(trial).await;
        self.as_delivered(trial, read)
    }

    /// Reads the calls of a trial that makes further calls. The trial's next record builds on its latest calls.
    pub(crate) async fn calls_to_go_on_from(&self, trial: &TrialId) -> Vec<CallEntry> {
        let read = self.read(trial).await;
        let latest =
            read.get(read.len().saturating_sub(write::encoder::COMPARED)..).unwrap_or_default().to_vec();
        // Best effort: without this event, the encoder writes the next call in full.
        self.note(Event::Reloaded { trial_id: trial.clone(), latest }).await;
        self.as_delivered(trial, read)
    }

    fn as_delivered(&self, trial: &TrialId, read: Vec<ReadCall>) -> Vec<CallEntry> {
        let undelivered = self.index.lock().unwrap_or_else(PoisonError::into_inner).undelivered(trial);
        let mut calls: Vec<_> = read.into_iter().map(|read| read.kept).collect();
        // These records are complete, but their agents got an error. Training must not use their answers.
        calls.iter_mut().for_each(|kept| kept.retract_if_in(&undelivered));
        calls
    }

    async fn read(&self, trial: &TrialId) -> Vec<ReadCall> {
        let places = self.index.lock().unwrap_or_else(PoisonError::into_inner).calls(trial);
        let dir = Arc::clone(&self.dir);
        // Reading blocks on the disk, so it runs outside the threads of the runtime.
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = Reader::of(&dir);
            let call = |at| {
                let read = reader.call(at);
                read.inspect_err(|reason| tracing::error!(?at, reason, "a captured call cannot be read")).ok()
            };
            places.into_iter().filter_map(call).collect()
        });
        read.await.unwrap_or_default()
    }
}

impl QueueSlot {
    /// Hands the event over without waiting.
    pub(crate) fn append(self, event: Event) -> Durable {
        let (kept, waiting) = oneshot::channel();
        self.permit.send(Entry::Keep { event, kept });
        waiting
    }

    /// Hands over the outcome of a call: one record, or the records of a batch.
    pub(crate) fn append_calls(self, mut calls: Vec<CallEntry>) -> Durable {
        match (calls.pop(), calls.is_empty()) {
            (Some(call), true) => self.append(Event::Call(call)),
            (last, _) => {
                calls.extend(last);
                self.append(Event::Batch(calls))
            }
        }
    }
}

impl StoreThread {
    /// Waits until every accepted event is written, and every reserved place is used or dropped. Blocks.
    pub(crate) fn finish(self) -> Result<(), StoreError> {
        drop(self.is_ending);
        // If the receiving task has ended already, there is nothing left to stop.
        let _ = self.queue.blocking_send(Entry::Finish);
        let written = self.writer.join().unwrap_or(Err(StoreError::Closed));
        // The end of the writer stops the syncer.
        drop(self.syncer.join());
        written
    }
}
