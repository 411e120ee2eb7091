//! Gathers what ends at about the same time, so that it is written together.
//!
//! Waking the writing thread costs more than writing a record. So a record waits until the runtime has looked once at
//! whatever else is ready: under load many calls end in that time, otherwise it is over at once.

use tokio::sync::mpsc;

use super::Entry;

/// Events written with one system call, at most.
const BATCH: usize = 256;
/// Batches on their way to the thread: one, while it writes another.
const AHEAD: usize = 1;

/// Starts to gather entries, until a [`Entry::Finish`] came and every place is given back.
pub(super) fn spawn(entries: mpsc::Receiver<Entry>) -> mpsc::Receiver<Vec<Entry>> {
    let (batches, to_write) = mpsc::channel(AHEAD);
    tokio::spawn(gather(entries, batches));
    to_write
}

async fn gather(mut entries: mpsc::Receiver<Entry>, batches: mpsc::Sender<Vec<Entry>>) {
    let mut batch = Vec::new();
    while entries.recv_many(&mut batch, BATCH).await > 0 {
        tokio::task::yield_now().await;
        while batch.len() < BATCH
            && let Ok(entry) = entries.try_recv()
        {
            batch.push(entry);
        }
        if batch.iter().any(|entry| matches!(entry, Entry::Finish)) {
            entries.close();
        }
        if batches.send(std::mem::take(&mut batch)).await.is_err() {
            return;
        }
    }
}
