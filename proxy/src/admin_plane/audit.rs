//! The audit log: a JSON object per line for each action at the admin plane that changes something or reads rollouts.
//!
//! A thread of its own writes, so that a slow disk blocks no thread of the runtime. Its queue is bounded. An action is
//! answered after its record is written. While the log cannot be written, further actions are refused with 503 before
//! they have an effect. The record of an action that had its effect already waits in memory for the disk.

mod file;
mod record;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use self::file::AuditFile;
pub(crate) use self::record::{AuditRecord, Caller, Subject};
use crate::common::refusal_counts::RefusalCounts;

/// The number of actions that may be in flight or wait for their record. A trainer's long poll is one.
const QUEUE: usize = 4096;
/// The longest time in which the thread may not take or write a record. Then the log counts as failing.
const PATIENCE: Duration = Duration::from_secs(5);

const ENDED: &str = "its thread has ended";

/// The log. Clones write to the same file.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    queue: mpsc::Sender<Message>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    path: PathBuf,
    is_failing: AtomicBool,
    counts: RefusalCounts,
}

/// A message to the thread. It answers with the result of writing everything that waits.
#[derive(Debug)]
struct Message {
    /// The line to add. `None` for another attempt at the lines that wait.
    line: Option<Vec<u8>>,
    written: Option<oneshot::Sender<Result<(), String>>>,
}

/// The place of one record in the queue of the thread, so that the record of an action is never lost.
#[derive(Debug)]
pub(crate) struct Place {
    permit: mpsc::OwnedPermit<Message>,
    state: Arc<State>,
}

/// The audit log cannot be opened at the start.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {}: {source}", path.display())]
pub struct AuditLogError {
    path: PathBuf,
    source: io::Error,
}

/// The audit log cannot be written now.
#[derive(Debug, thiserror::Error)]
#[error(
    "the audit log cannot be written ({reason}), so nothing was changed or read: repeat the request when it can"
)]
pub(crate) struct AuditFailing {
    reason: String,
}

impl AuditLog {
    /// Opens the file and starts the thread, which ends with the last clone.
    ///
    /// # Errors
    /// The file cannot be opened, or the system starts no further thread.
    pub(crate) fn start(path: PathBuf, counts: RefusalCounts) -> Result<Self, AuditLogError> {
        let failed = |source| AuditLogError { path: path.clone(), source };
        let file = AuditFile::open(path.clone()).map_err(failed)?;
        let (queue, messages) = mpsc::channel(QUEUE);
        let state = Arc::new(State { path: path.clone(), is_failing: AtomicBool::new(false), counts });
        let of_thread = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("audit-log".to_owned());
        thread.spawn(move || write_all(file, messages, &of_thread)).map_err(failed)?;
        Ok(Self { queue, state })
    }

    /// Returns the place of one record, before its action has an effect. If the log failed before, the thread tries
    /// again first.
    ///
    /// # Errors
    /// The log cannot be written, or has no free place.
    pub(crate) async fn place(&self) -> Result<Place, AuditFailing> {
        let failing = |reason| AuditFailing { reason };
        let reserved = timeout(PATIENCE, self.queue.clone().reserve_owned()).await;
        let permit = reserved.map_err(|_| failing(format!("it has had no free place for {PATIENCE:?}")))?;
        let permit = permit.map_err(|_| failing(ENDED.to_owned()))?;
        if !self.state.is_failing.load(Ordering::Acquire) {
            return Ok(Place { permit, state: Arc::clone(&self.state) });
        }
        drop(permit);
        let (written, result) = oneshot::channel();
        let retry = Message { line: None, written: Some(written) };
        self.queue.try_send(retry).map_err(|_| failing("its queue is full".to_owned()))?;
        answer(result).await.map_err(failing)?;
        let permit = self.queue.clone().reserve_owned().await.map_err(|_| failing(ENDED.to_owned()))?;
        Ok(Place { permit, state: Arc::clone(&self.state) })
    }

    /// Adds a record of minor importance without waiting. It is dropped and counted if the log is failing or busy.
    pub(crate) fn note(&self, record: &AuditRecord) {
        let message = Message { line: Some(record.line()), written: None };
        if self.state.is_failing.load(Ordering::Acquire) || self.queue.try_send(message).is_err() {
            self.state.counts.audit_record_lost();
        }
    }
}

impl Place {
    /// Writes the record, and returns once it is written or has failed to be. After a failure the record waits in
    /// memory, and no further place is given until it is written.
    pub(crate) async fn write(self, record: &AuditRecord) {
        let (written, result) = oneshot::channel();
        self.permit.send(Message { line: Some(record.line()), written: Some(written) });
        if let Err(reason) = answer(result).await {
            self.state.fails(&reason);
        }
    }

    /// Writes the record without waiting, for a client that has left.
    pub(crate) fn leave(self, record: &AuditRecord) {
        self.permit.send(Message { line: Some(record.line()), written: None });
    }
}

/// Waits for the result of the thread.
async fn answer(result: oneshot::Receiver<Result<(), String>>) -> Result<(), String> {
    match timeout(PATIENCE, result).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(ENDED.to_owned()),
        Err(_) => Err(format!("no write has ended for {PATIENCE:?}")),
    }
}

impl State {
    fn fails(&self, reason: &str) {
        // One line when it begins, however many records fail.
        if !self.is_failing.swap(true, Ordering::AcqRel) {
            tracing::error!(file = %self.path.display(), reason, "the audit log cannot be written: the actions in it are refused");
        }
        self.counts.audit_is_failing(true);
    }

    fn works(&self) {
        if self.is_failing.swap(false, Ordering::AcqRel) {
            tracing::info!(file = %self.path.display(), "the audit log is written again");
        }
        self.counts.audit_is_failing(false);
    }
}

/// The thread: writes each line, and answers.
fn write_all(mut file: AuditFile, mut messages: mpsc::Receiver<Message>, state: &State) {
    while let Some(Message { line, written }) = messages.blocking_recv() {
        if line.is_some_and(|line| file.add(line).is_err()) {
            state.counts.audit_record_lost();
        }
        let result = file.flush().map_err(|error| error.to_string());
        match &result {
            Ok(()) => state.works(),
            Err(reason) => state.fails(reason),
        }
        // The client of the request may have left meanwhile.
        let _ = written.map(|written| written.send(result));
    }
}

#[cfg(test)]
mod tests;
