//! Gathers what ends at about the same time, so that it is written together and told together.
//!
//! Waking a thread costs more than writing a record. So a record waits until the runtime has looked at whatever else is
//! ready: under load many calls end in that time, otherwise it is over at once. The writing thread wakes this
//! task once for a batch, and this task wakes those who wait, which costs little on the runtime's own threads.

use tokio::sync::{mpsc, oneshot};

use super::{Entry, Event, StoreError};

/// Events written with one system call, at most.
const BATCH: usize = 256;

/// How often the runtime is let look for more, as long as each look finds some.
const TURNS: usize = 4;

/// Events to be written together, and who waits for all of them.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    pub(super) written: oneshot::Sender<Result<(), StoreError>>,
}

/// Starts to gather entries, until a [`Entry::Finish`] came and every place is given back.
pub(super) fn spawn(entries: mpsc::Receiver<Entry>) -> mpsc::Receiver<Batch> {
    let (batches, to_write) = mpsc::channel(1);
    tokio::spawn(gather(entries, batches));
    to_write
}

async fn gather(mut entries: mpsc::Receiver<Entry>, batches: mpsc::Sender<Batch>) {
    let mut gathered = Vec::new();
    while entries.recv_many(&mut gathered, BATCH).await > 0 {
        for _ in 0..TURNS {
            let known = gathered.len();
            tokio::task::yield_now().await;
            while gathered.len() < BATCH
                && let Ok(entry) = entries.try_recv()
            {
                gathered.push(entry);
            }
            if gathered.len() == known {
                break;
            }
        }
        let mut events = Vec::with_capacity(gathered.len());
        let mut waiting = Vec::with_capacity(gathered.len());
        for entry in gathered.drain(..) {
            match entry {
                Entry::Keep { event, kept } => {
                    events.push(event);
                    waiting.push(kept);
                }
                Entry::Finish => entries.close(),
            }
        }
        let (written, outcome) = oneshot::channel();
        // What ends while these are written makes the next batch.
        let sent = batches.send(Batch { events, written }).await;
        let outcome = match sent {
            Ok(()) => outcome.await.unwrap_or(Err(StoreError::Closed)),
            Err(_) => Err(StoreError::Closed),
        };
        for kept in waiting {
            // Nobody may be waiting any more: the record is kept all the same.
            drop(kept.send(outcome.clone()));
        }
    }
}
