//! The capture store: what happened, in order, on disk before anyone is told that it did.
//!
//! One append-only file of events, each a record with checksums, written by one thread. A call reserves its place in the
//! queue before it is sent upstream ([`Store::reserve`]), so its record can always be handed over, also from a `Drop`,
//! and a slow disk slows new calls instead of filling memory.

mod call_record;
mod event;
mod gather;
mod numbers;
mod read;
mod record;
mod writer;

use std::path::Path;
use std::sync::Arc;

pub(crate) use event::{Event, Opened, PolicyChange};
pub use read::{Damage, ReadError, Stored, StoredTrial, read_dir};
use rolltap_rollout::call::Call;
use tokio::sync::{mpsc, oneshot};

/// Calls under way and records waiting to be written, together.
const PLACES: usize = 8192;

/// The name of the event file in a data directory.
const FILE_NAME: &str = "capture.rolltap";

/// What a record begins with: the content is an event in JSON.
const EVENT: u8 = 1;
/// The content is a call.
const CALL: u8 = 2;

/// Why something could not be kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk refused.
    #[error("the capture store cannot write to {path}: {reason}")]
    Write {
        /// The event file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// The proxy is going down.
    #[error("the capture store is closed")]
    Closed,
}

/// A handle to the store; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    queue: mpsc::Sender<Entry>,
}

/// The thread that writes, to be finished with.
#[derive(Debug)]
pub(crate) struct StoreThread {
    thread: std::thread::JoinHandle<Result<(), StoreError>>,
    queue: mpsc::Sender<Entry>,
}

/// What the writer thread is told.
#[derive(Debug)]
enum Entry {
    /// An event on its way to disk, and who waits for it.
    Keep { event: Event, kept: oneshot::Sender<Result<(), StoreError>> },
    /// Nobody gets a place any more; those that have one may use it.
    Finish,
}

/// A place in the queue that nobody else can take.
#[derive(Debug)]
pub(crate) struct Place(mpsc::OwnedPermit<Entry>);

/// Resolves once the event would survive the death of this process.
pub(crate) type Kept = oneshot::Receiver<Result<(), StoreError>>;

/// What a [`Kept`] that resolved says.
pub(crate) fn outcome(
    kept: Result<Result<(), StoreError>, oneshot::error::RecvError>,
) -> Result<(), StoreError> {
    kept.unwrap_or(Err(StoreError::Closed))
}

impl Store {
    /// Opens the event file of `data_dir`, made where it is missing, to append to it. Inside of a tokio runtime.
    pub(crate) fn open(data_dir: &Path) -> Result<(Self, StoreThread), StoreError> {
        let writer = writer::Writer::open(&data_dir.join(FILE_NAME))?;
        let (queue, entries) = mpsc::channel(PLACES);
        let batches = gather::spawn(entries);
        let thread =
            std::thread::Builder::new().name("capture-store".to_owned()).spawn(move || writer.run(batches));
        let thread = thread.map_err(|error| StoreError::Write {
            path: data_dir.display().to_string(),
            reason: format!("no thread to write from: {error}"),
        })?;
        Ok((Self { queue: queue.clone() }, StoreThread { thread, queue }))
    }

    /// Waits for a place in the queue.
    pub(crate) async fn reserve(&self) -> Result<Place, StoreError> {
        self.queue.clone().reserve_owned().await.map(Place).map_err(|_| StoreError::Closed)
    }

    /// Keeps an event; returns once it is written.
    pub(crate) async fn keep(&self, event: Event) -> Result<(), StoreError> {
        outcome(self.reserve().await?.keep(event).await)
    }
}

impl Place {
    /// Hands the event over, without waiting.
    pub(crate) fn keep(self, event: Event) -> Kept {
        let (kept, waiting) = oneshot::channel();
        self.0.send(Entry::Keep { event, kept });
        waiting
    }

    /// Hands over what a call came to: one record, or those of a batch.
    pub(crate) fn keep_calls(self, mut calls: Vec<Arc<Call>>) -> Kept {
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
        // If the thread has ended already, there is nobody to tell.
        let _ = self.queue.blocking_send(Entry::Finish);
        self.thread.join().unwrap_or(Err(StoreError::Closed))
    }
}
