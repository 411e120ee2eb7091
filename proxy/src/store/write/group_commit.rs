//! Group commit: records that end at about the same time share one write and one wake-up.
//!
//! A write costs more than the bytes of a record. So a batch waits until the runtime has polled its other ready tasks.
//! Under load, many calls end in that time. Otherwise the wait is over at once.
//!
//! This task writes a batch without calls to the page cache itself, because that takes microseconds, and waking a thread
//! takes more. To encode calls takes up to half a millisecond, for which the tokens of other streams would wait. So they go
//! to the thread of [`super::writer`], whose priority is lower, and which wakes this task once per batch.
//!
//! In a cluster, the waiters of a batch are answered once the copy of the log has it. Further batches are written meanwhile.
//!
//! On a disk error no record is dropped. Waiters get an error after a timeout. The records are written once the disk
//! recovers, followed by events that undo them for those waiters.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::log::Log;
use crate::store::health::Health;
use crate::store::{Entry, Event, StoreError};

/// The number of events at which a batch takes no further entries.
const BATCH: usize = 256;

/// The maximum number of times that the task yields for more entries, as long as each time brings some.
const TURNS: usize = 4;

/// Events that are written together, and the channel that reports the result.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) events: Arc<Vec<Event>>,
    /// Whether the writer must begin a new segment, because the current file is no longer trusted.
    pub(crate) in_new_segment: bool,
    /// Gets the number of the batch in the copy of the log.
    pub(crate) written: oneshot::Sender<Result<u64, StoreError>>,
}

/// The waiter of each event. `None` once it is answered.
type Waiting = Vec<Option<oneshot::Sender<Result<(), StoreError>>>>;

/// Entries that were taken from the queue and are not at the writer yet.
#[derive(Default)]
struct Gathered {
    events: Vec<Event>,
    waiting: Waiting,
    in_new_segment: bool,
}

/// A batch at the writer.
struct Writing {
    events: Arc<Vec<Event>>,
    outcome: oneshot::Receiver<Result<u64, StoreError>>,
    waiting: Waiting,
}

/// Written batches whose copies are not acknowledged.
#[derive(Default)]
struct Replicating {
    /// The number through which the log is copied. `None` without a cluster.
    through: Option<watch::Receiver<u64>>,
    batches: VecDeque<WrittenBatch>,
}

/// A written batch, and its number in the copy of the log.
struct WrittenBatch {
    number: u64,
    events: Arc<Vec<Event>>,
    waiting: Waiting,
}

/// The task that gathers entries.
pub(crate) struct GroupCommit {
    pub(crate) entries: mpsc::Receiver<Entry>,
    pub(crate) log: Arc<Mutex<Log>>,
    pub(crate) health: Health,
    /// After each notification, the next batch begins a new segment.
    pub(crate) distrusted: Arc<Notify>,
    /// The number through which the log is copied. `None` without a cluster.
    pub(crate) replicated: Option<watch::Receiver<u64>>,
}

/// Starts to gather entries. Ends after an [`Entry::Finish`], once every reserved place is used or dropped. Returns the
/// batches for the writer's thread.
pub(crate) fn spawn(gathers: GroupCommit) -> mpsc::Receiver<Batch> {
    let (batches, to_write) = mpsc::channel(1);
    tokio::spawn(gather(gathers, batches));
    to_write
}

async fn gather(gathers: GroupCommit, batches: mpsc::Sender<Batch>) {
    let GroupCommit { mut entries, log, health, distrusted, replicated } = gathers;
    let mut gathered = Gathered::default();
    let mut replicating = Replicating { through: replicated, ..Replicating::default() };
    let mut writing: Option<Writing> = None;
    let mut is_over = false;
    let mut came = Vec::new();
    while !is_over || !gathered.is_empty() || writing.is_some() || replicating.is_waited_for() {
        tokio::select! {
            biased;
            // The result comes first, so that the next batch does not delay the answers of this one.
            outcome = of(&mut writing) => {
                if let Some(Writing { events, waiting, .. }) = writing.take() {
                    match outcome {
                        Ok(number) => replicating.add(WrittenBatch { number, events, waiting }),
                        Err(error) => answer(waiting, &Err(error)),
                    }
                }
            }
            through = replicating.advanced() => replicating.answer_through(through),
            // An fsync failed. This comes before the entries, so that none of them enters the file.
            () = distrusted.notified() => gathered.in_new_segment = true,
            // A full batch receives nothing more. The queue fills up then, and slows new calls.
            count = entries.recv_many(&mut came, BATCH), if !is_over && gathered.events.len() < BATCH => {
                is_over = count == 0;
                came.drain(..).for_each(|entry| gathered.take(entry, &mut entries));
            }
            // Waiters get an error while the writer still retries.
            error = health.is_given_up(), if gathered.is_waited_for() || replicating.is_waited_for()
                || writing.as_ref().is_some_and(Writing::is_waited_for) =>
            {
                gathered.give_up(&mut replicating, writing.as_mut(), &error);
            }
        }
        if writing.is_none() && !gathered.is_empty() {
            gathered.look_for_more(&mut entries).await;
            if let Some(number) = gathered.write_small(&log) {
                let Gathered { events, waiting, .. } = std::mem::take(&mut gathered);
                replicating.add(WrittenBatch { number, events: Arc::new(events), waiting });
            } else {
                writing = gathered.send(&batches).await;
            }
        }
    }
}

/// Resolves with the result of the batch at the writer, and never if there is none.
async fn of(writing: &mut Option<Writing>) -> Result<u64, StoreError> {
    match writing {
        Some(writing) => (&mut writing.outcome).await.unwrap_or(Err(StoreError::Closed)),
        None => pending().await,
    }
}

fn answer(waiting: Waiting, outcome: &Result<(), StoreError>) {
    for kept in waiting.into_iter().flatten() {
        // The waiter may be gone. The record is written nevertheless.
        drop(kept.send(outcome.clone()));
    }
}

/// Answers all waiters with an error, and returns the events that undo theirs.
fn retract(events: &[Event], waiting: &mut Waiting, error: &StoreError) -> Vec<Event> {
    let answered = events.iter().zip(waiting).filter_map(|(event, waiting)| {
        let kept = waiting.take()?;
        // A waiter that is gone never gets the error, so its event stays as it is.
        kept.send(Err(error.clone())).ok().map(|()| event)
    });
    answered.flat_map(Event::retractions).collect()
}

fn is_waited_for(waiting: &Waiting) -> bool {
    waiting.iter().any(Option::is_some)
}

impl Replicating {
    /// Answers the waiters once the copy of the log has the batch. Without a cluster, that is at once.
    fn add(&mut self, batch: WrittenBatch) {
        let is_copied = |through: &watch::Receiver<u64>| *through.borrow() >= batch.number;
        if self.through.as_ref().is_none_or(is_copied) {
            answer(batch.waiting, &Ok(()));
        } else {
            self.batches.push_back(batch);
        }
    }

    /// Resolves with the number through which the log is copied, once that includes the first batch.
    async fn advanced(&mut self) -> u64 {
        let (Some(first), Some(through)) = (self.batches.front(), &mut self.through) else {
            return pending().await;
        };
        match through.wait_for(|through| *through >= first.number).await.map(|through| *through) {
            Ok(through) => through,
            // The copy has ended, and the health of the store shows why.
            Err(_) => pending().await,
        }
    }

    fn answer_through(&mut self, through: u64) {
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.number <= through) {
            answer(batch.waiting, &Ok(()));
        }
    }

    fn is_waited_for(&self) -> bool {
        self.batches.iter().any(|batch| is_waited_for(&batch.waiting))
    }
}

impl Writing {
    fn is_waited_for(&self) -> bool {
        is_waited_for(&self.waiting)
    }
}

impl Gathered {
    /// Answers all waiters with an error. The events that undo theirs are written after them.
    fn give_up(&mut self, replicating: &mut Replicating, writing: Option<&mut Writing>, error: &StoreError) {
        let mut retractions: Vec<Event> = Vec::new();
        for batch in &mut replicating.batches {
            retractions.extend(retract(&batch.events, &mut batch.waiting, error));
        }
        if let Some(writing) = writing {
            retractions.extend(retract(&writing.events, &mut writing.waiting, error));
        }
        retractions.extend(retract(&self.events, &mut self.waiting, error));
        self.waiting.extend(retractions.iter().map(|_| None));
        self.events.append(&mut retractions);
    }

    fn take(&mut self, entry: Entry, entries: &mut mpsc::Receiver<Entry>) {
        match entry {
            Entry::Keep { event, kept } => {
                self.events.push(event);
                self.waiting.push(Some(kept));
            }
            // Places that are already reserved can still be used.
            Entry::Finish => entries.close(),
        }
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.in_new_segment
    }

    fn is_waited_for(&self) -> bool {
        is_waited_for(&self.waiting)
    }

    async fn look_for_more(&mut self, entries: &mut mpsc::Receiver<Entry>) {
        for _ in 0..TURNS {
            let known = self.events.len();
            tokio::task::yield_now().await;
            while self.events.len() < BATCH
                && let Ok(entry) = entries.try_recv()
            {
                self.take(entry, entries);
            }
            if self.events.len() == known {
                break;
            }
        }
    }

    /// Writes the events, if none of them is a call. Returns their number in the copy of the log, or `None` if they are not
    /// written.
    fn write_small(&self, log: &Mutex<Log>) -> Option<u64> {
        let has_call = self.events.iter().any(|event| matches!(event, Event::Call(_) | Event::Batch(_)));
        if self.in_new_segment || has_call {
            return None;
        }
        // The writer's thread removes segments at its start. A poisoned log is a defect, which that thread reports.
        let mut log = log.try_lock().ok()?;
        // The writer's thread repeats a failed append, and reports it.
        (!log.waits_for_disk() && log.append(&self.events).is_ok()).then(|| log.replica_number())
    }

    /// Sends the events to the writer. Events that arrive while they are written form the next batch.
    async fn send(&mut self, batches: &mpsc::Sender<Batch>) -> Option<Writing> {
        let Self { events, waiting, in_new_segment } = std::mem::take(self);
        let (written, outcome) = oneshot::channel();
        let events = Arc::new(events);
        match batches.send(Batch { events: Arc::clone(&events), in_new_segment, written }).await {
            Ok(()) => Some(Writing { events, outcome, waiting }),
            Err(_) => {
                answer(waiting, &Err(StoreError::Closed));
                None
            }
        }
    }
}
