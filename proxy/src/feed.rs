//! The feed: decides which trials are complete, in which order, and which groups are closed.
//!
//! [`Ledger`] derives the consequences of seals and rewards. [`Sequencer`] writes each consequence to the store before
//! it takes effect. So a restart never changes the place of a trial that a reader has seen. [`Reader`] returns the
//! trials.

mod cursor;
mod group;
mod ledger;
mod order;
mod reader;
mod refusal;
mod rows;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use cursor::CursorError;
pub(crate) use ledger::{KeptTrial, Ledger};
pub(crate) use reader::{LineError, Reader, Reading};
pub(crate) use refusal::OpenRefusal;
pub(crate) use rows::{prepared, rows};
pub(crate) use sequencer::Sequencer;
use tokio::sync::{mpsc, oneshot, watch};

/// The capacity of the channel to the sequencer. Further requests wait for a free place.
const WAITING: usize = 1024;

/// The feed, which the whole proxy shares.
#[derive(Debug)]
pub(crate) struct Feed {
    ledger: Mutex<Ledger>,
    /// The last number of a completion or closing. Readers wait for a higher number.
    last: watch::Sender<u64>,
    nudges: mpsc::Sender<Wake>,
}

/// A request to be notified once everything that is due is written.
pub(crate) type Wake = oneshot::Sender<()>;

impl Feed {
    /// Creates a feed from this ledger, and the channel of requests to its sequencer.
    pub(crate) fn new(ledger: Ledger) -> (Arc<Self>, mpsc::Receiver<Wake>) {
        let (nudges, heard) = mpsc::channel(WAITING);
        let last = watch::Sender::new(ledger.last());
        (Arc::new(Self { ledger: Mutex::new(ledger), last, nudges }), heard)
    }

    /// Locks the ledger. Callers hold the lock only for short operations.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once the sequencer has written everything that is due, or has failed to. So a client whose reward is
    /// acknowledged finds the trial complete.
    pub(crate) async fn settled(&self) {
        let (settled, waiting) = oneshot::channel();
        if self.nudges.send(settled).await.is_ok() {
            // A sequencer that shuts down drops the request without an answer.
            let _ = waiting.await;
        }
    }

    /// Changes the ledger, and notifies readers if the last number has changed.
    fn tell(&self, change: impl FnOnce(&mut Ledger)) {
        let mut ledger = self.ledger();
        change(&mut ledger);
        let last = ledger.last();
        // The lock is released first, because the notified readers take it.
        drop(ledger);
        self.last.send_if_modified(|known| std::mem::replace(known, last) != last);
    }
}

mod schedule;
mod sequencer;
#[cfg(test)]
pub(crate) mod tests;
