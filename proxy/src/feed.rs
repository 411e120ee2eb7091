//! From sealed trials and rewards to what a trainer reads: which trials are complete, in which order, and which groups are
//! closed.
//!
//! [`Ledger`] knows what follows from what. [`Sequencer`] keeps what is due in the store, one thing after the other, and only
//! then is it so: no reader sees a trial whose place could be another after a restart. [`Reader`] hands trials out.

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

/// Requests that wait for the clerk, at most; more wait to be let wait.
const WAITING: usize = 1024;

/// The ledger as all of the proxy shares it.
#[derive(Debug)]
pub(crate) struct Feed {
    ledger: Mutex<Ledger>,
    /// The last number of a completion or closing: readers wait for it to grow.
    last: watch::Sender<u64>,
    nudges: mpsc::Sender<Wake>,
}

/// Somebody waits until all that is due is kept.
type Wake = oneshot::Sender<()>;

impl Feed {
    /// A feed that goes on from this ledger, and what its clerk listens to.
    pub(crate) fn new(ledger: Ledger) -> (Arc<Self>, mpsc::Receiver<Wake>) {
        let (nudges, heard) = mpsc::channel(WAITING);
        let last = watch::Sender::new(ledger.last());
        (Arc::new(Self { ledger: Mutex::new(ledger), last, nudges }), heard)
    }

    /// The ledger, for a moment: nothing that takes long is done with it.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once the clerk has kept what is due now, or could not. So whoever is told that a reward came finds the
    /// trial complete.
    pub(crate) async fn settled(&self) {
        let (settled, waiting) = oneshot::channel();
        if self.nudges.send(settled).await.is_ok() {
            // A clerk that goes down tells nobody.
            let _ = waiting.await;
        }
    }

    /// Changes the ledger, and tells readers if there is something new.
    fn tell(&self, change: impl FnOnce(&mut Ledger)) {
        let mut ledger = self.ledger();
        change(&mut ledger);
        let last = ledger.last();
        drop(ledger);
        self.last.send_if_modified(|known| std::mem::replace(known, last) != last);
    }
}

mod schedule;
mod sequencer;
#[cfg(test)]
pub(crate) mod tests;
