//! The thread that writes batches which take long: large ones, those that need an fsync or another segment, and those
//! whose write failed before.
//!
//! A failed write is retried in the same order until it succeeds. Only shutdown gives up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::group_commit::Batch;
use super::log::Log;
use crate::store::health::{Health, Part};
use crate::store::{Event, StoreError};

/// The pause between two tries of a failed write.
const AGAIN: Duration = Duration::from_millis(250);
/// How long shutdown waits for a failing disk.
const LAST_TRIES: Duration = Duration::from_secs(5);

pub(crate) struct Writer {
    pub(crate) log: Arc<Mutex<Log>>,
    pub(crate) health: Health,
    /// Whether the process is shutting down.
    pub(crate) is_ending: Arc<AtomicBool>,
}

impl Writer {
    /// Runs until the channel of batches closes, and then makes the last segment durable. Fails if the task that gathers
    /// batches panicked while it appended to the log.
    pub(crate) fn run(self, mut batches: mpsc::Receiver<Batch>) -> Result<(), StoreError> {
        self.with_log(Log::retire_if_asked)?;
        while let Some(Batch { events, in_new_segment, written }) = batches.blocking_recv() {
            // After a failed fsync, nothing more is appended to the file.
            if in_new_segment {
                self.with_log(Log::abandon_segment)?;
            }
            // The waiter may be gone.
            drop(written.send(self.write(&events)));
        }
        self.with_log(|log| log.close().map_err(|error| log.refused(&error)))?
    }

    /// Writes the events, and retries until it succeeds or shutdown gives up. Returns their number in the copy of the log.
    fn write(&self, events: &[Event]) -> Result<u64, StoreError> {
        let mut ends_at = None;
        loop {
            let appended = |log: &mut Log| {
                log.append(events).map(|()| log.replica_number()).map_err(|error| log.refused(&error))
            };
            let error = match self.with_log(appended)? {
                Ok(number) => {
                    self.health.is_well(Part::Disk);
                    return Ok(number);
                }
                Err(error) => error,
            };
            self.health.fails(Part::Disk, error.clone());
            // The time limit begins with the first failure during shutdown.
            if self.is_ending.load(Ordering::Relaxed) {
                let ends_at = *ends_at.get_or_insert_with(|| Instant::now() + LAST_TRIES);
                if Instant::now() > ends_at {
                    return Err(error);
                }
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn with_log<T>(&self, use_log: impl FnOnce(&mut Log) -> T) -> Result<T, StoreError> {
        // A thread that panicked while it appended may have left the log half changed.
        self.log.lock().map(|mut log| use_log(&mut log)).map_err(|_| StoreError::WriterEnded)
    }
}
