//! The capture store: what happened, in order, on disk before anyone is told that it did.
//!
//! Append-only segments of records with checksums, written by one thread. A call takes its places in the queue before it is
//! sent upstream ([`Store::reserve_call`]), so its record can always be handed over, also from a `Drop`, and a slow disk
//! slows new calls instead of filling memory. A disk that fails refuses new calls ([`health`]) and loses none.
//!
//! Writing: [`gather`] → [`writer`] → [`encoder`] → [`content`] → [`record`]. Reading: [`look`] finds every trial and where
//! its calls lie, [`read`] reads the calls of one.

mod format;
mod health;
mod lock;
mod open;
mod read;
mod retention;
mod summary;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use format::conversation::{PromptMaker, StoredConversation};
pub(crate) use format::event::{CallEntry, Completion, Event, GroupClosed, Opened, PolicyChange};
pub(crate) use open::OpenedStore;
pub use read::archive::{Archive, Damage, ReadError, Stored, StoredTrial, read_dir};
pub(crate) use read::recovery::RecoveredTrial;
pub use retention::Retention;
use rolltap_rollout::ids::TrialId;
pub(crate) use summary::completion_tokens;
pub use summary::{CauseOfModel, Summary};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
pub use write::fsync::SyncPolicy;

use self::format::event::ReadCall;
use self::health::Health;
use self::read::index::Index;
use self::read::reader::Reader;

/// Calls that may be under way at once. Further ones wait.
const CALLS: usize = 8192;

/// Entries that are reserved or wait to be written: two of each call, so that a call that may be under way always gets both
/// of its places, and some for other events.
const PLACES: usize = 2 * CALLS + 1024;

/// Why something could not be kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk refused.
    #[error("the capture store cannot write to {path}: {reason}")]
    Write {
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// What is there cannot be read.
    #[error(transparent)]
    Read(#[from] Arc<ReadError>),
    /// Another process writes there.
    #[error("{path} is in use by another rolltap{by}: stop that one, or give another --data")]
    InUse {
        /// The data directory.
        path: String,
        /// Who, as far as it says.
        by: String,
    },
    /// The proxy is going down.
    #[error("the capture store is closed")]
    Closed,
    /// A thread that writes has ended although the process goes on.
    #[error("the capture store has ended by a defect: nothing can be captured until the proxy is restarted")]
    WriterEnded,
}

/// A handle to the store; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    queue: mpsc::Sender<Entry>,
    /// A permit for each call under way.
    calls: Arc<Semaphore>,
    health: Health,
    index: Arc<Mutex<Index>>,
    dir: Arc<Path>,
}

/// How a store writes, and for how long it keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// How soon what was written also survives the death of the machine.
    pub sync: SyncPolicy,
    /// When sealed trials go.
    pub retention: Retention,
}

/// Trials whose retention is over.
#[derive(Debug)]
pub(crate) struct Forgotten {
    pub(crate) trials: Vec<TrialId>,
    /// The newest number of the feed that a forgotten trial had, now or earlier.
    pub(crate) through: u64,
}

/// The threads that write, to be finished with.
#[derive(Debug)]
pub(crate) struct StoreThread {
    writer: std::thread::JoinHandle<Result<(), StoreError>>,
    syncer: std::thread::JoinHandle<()>,
    queue: mpsc::Sender<Entry>,
    is_ending: Arc<AtomicBool>,
    /// Held as long as anything may be written.
    _lock: lock::DirLock,
}

/// What the writer thread is told.
#[derive(Debug)]
enum Entry {
    /// An event on its way to disk, and who waits for it.
    Keep { event: Event, kept: oneshot::Sender<Result<(), StoreError>> },
    /// What was written last is not durable: the file is not to be trusted any more.
    NewSegment,
    /// Nobody gets a place any more; those that have one may use it.
    Finish,
}

/// A place in the queue that nobody else can take.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    permit: mpsc::OwnedPermit<Entry>,
    /// Of the call whose record comes here; none for other events.
    _call: Option<OwnedSemaphorePermit>,
}

/// The places of a call, or of another undertaking that is written twice.
#[derive(Debug)]
pub(crate) struct CallSlots {
    /// For what is written before it begins.
    pub(crate) intent: QueueSlot,
    /// For what it comes to.
    pub(crate) record: QueueSlot,
}

/// Resolves once the event would survive the death of this process.
pub(crate) type Durable = oneshot::Receiver<Result<(), StoreError>>;

/// What a [`Durable`] that resolved says.
pub(crate) fn outcome(
    kept: Result<Result<(), StoreError>, oneshot::error::RecvError>,
) -> Result<(), StoreError> {
    kept.unwrap_or(Err(StoreError::Closed))
}

impl Store {
    /// Waits for a place in the queue. Not while nothing can be written.
    pub(crate) async fn reserve(&self) -> Result<QueueSlot, StoreError> {
        self.health.check()?;
        let permit = self.queue.clone().reserve_owned().await.map_err(|_| StoreError::Closed)?;
        Ok(QueueSlot { permit, _call: None })
    }

    /// Waits for the places of a call. Not while nothing can be written.
    pub(crate) async fn reserve_call(&self) -> Result<CallSlots, StoreError> {
        // One permit stands for both places: calls that each held one place and waited for another would wait for ever.
        let call = Arc::clone(&self.calls).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let intent = self.reserve().await?;
        Ok(CallSlots { intent, record: QueueSlot { _call: Some(call), ..self.reserve().await? } })
    }

    /// Keeps an event; returns once it is written.
    pub(crate) async fn keep(&self, event: Event) -> Result<(), StoreError> {
        outcome(self.reserve().await?.keep(event).await)
    }

    /// Why nothing can be written, if that is so.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.health.check()
    }

    /// Resolves when nothing can be written any more, whatever becomes of the disk.
    pub(crate) async fn ended(&self) -> StoreError {
        self.health.ended().await;
        StoreError::WriterEnded
    }

    /// A trial's calls from disk, in the order in which they ended. What cannot be read is passed over, and logged.
    pub(crate) async fn calls(&self, trial: &TrialId) -> Vec<CallEntry> {
        let read = self.read(trial).await;
        self.as_delivered(trial, read)
    }

    /// The same, of a trial that is going to make further calls.
    pub(crate) async fn calls_to_go_on_from(&self, trial: &TrialId) -> Vec<CallEntry> {
        let read = self.read(trial).await;
        let latest =
            read.get(read.len().saturating_sub(write::encoder::COMPARED)..).unwrap_or_default().to_vec();
        // Without it, the next call is written whole.
        if let Ok(place) = self.reserve().await {
            drop(place.keep(Event::Woken { trial_id: trial.clone(), latest }));
        }
        self.as_delivered(trial, read)
    }

    fn as_delivered(&self, trial: &TrialId, read: Vec<ReadCall>) -> Vec<CallEntry> {
        let undelivered = self.index.lock().unwrap_or_else(PoisonError::into_inner).undelivered(trial);
        let mut calls: Vec<_> = read.into_iter().map(|read| read.kept).collect();
        calls.iter_mut().for_each(|kept| kept.retract_if_in(&undelivered));
        calls
    }

    async fn read(&self, trial: &TrialId) -> Vec<ReadCall> {
        let places = self.index.lock().unwrap_or_else(PoisonError::into_inner).calls(trial);
        let dir = Arc::clone(&self.dir);
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
    /// Hands the event over, without waiting.
    pub(crate) fn keep(self, event: Event) -> Durable {
        let (kept, waiting) = oneshot::channel();
        self.permit.send(Entry::Keep { event, kept });
        waiting
    }

    /// Hands over what a call came to: one record, or those of a batch.
    pub(crate) fn keep_calls(self, mut calls: Vec<CallEntry>) -> Durable {
        match (calls.pop(), calls.is_empty()) {
            (Some(call), true) => self.keep(Event::Call(call)),
            (last, _) => {
                calls.extend(last);
                self.keep(Event::Batch(calls))
            }
        }
    }
}

impl StoreThread {
    /// Waits until everything handed over, and all that still has a place, is written. Blocks.
    pub(crate) fn finish(self) -> Result<(), StoreError> {
        self.is_ending.store(true, Ordering::Relaxed);
        // If the thread has ended already, there is nobody to tell.
        let _ = self.queue.blocking_send(Entry::Finish);
        let written = self.writer.join().unwrap_or(Err(StoreError::Closed));
        drop(self.syncer.join());
        written
    }
}
