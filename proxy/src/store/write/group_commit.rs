//! Gathers what ends at about the same time, so that it is written together and told together.
//!
//! Waking a thread costs more than writing a record. So a record waits until the runtime has looked at whatever else is
//! ready: under load many calls end in that time, otherwise it is over at once. The writing thread wakes this
//! task once for a batch, and this task wakes those who wait, which costs little on the runtime's own threads.
//!
//! While the disk fails, nothing that was handed over is let go: those who wait get an error after a while. What they handed
//! over is written when it can be, and behind it that they got the error.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::store::health::Health;
use crate::store::{Entry, Event, StoreError};

/// Events written with one system call, at most.
const BATCH: usize = 256;

/// How often the runtime is let look for more, as long as each look finds some.
const TURNS: usize = 4;

/// Events to be written together, and who waits for all of them.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) events: Arc<Vec<Event>>,
    /// The file of before is not to be trusted any more.
    pub(crate) in_new_segment: bool,
    pub(crate) written: oneshot::Sender<Result<(), StoreError>>,
}

/// The waiter of each event; none once it has been answered.
type Waiting = Vec<Option<oneshot::Sender<Result<(), StoreError>>>>;

/// What was taken from the queue and is not with the writer yet.
#[derive(Default)]
struct Gathered {
    events: Vec<Event>,
    waiting: Waiting,
    in_new_segment: bool,
}

/// A batch at the writer.
struct Writing {
    events: Arc<Vec<Event>>,
    outcome: oneshot::Receiver<Result<(), StoreError>>,
    waiting: Waiting,
}

/// Starts to gather entries, until a [`Entry::Finish`] came and every place is given back.
pub(crate) fn spawn(entries: mpsc::Receiver<Entry>, health: Health) -> mpsc::Receiver<Batch> {
    let (batches, to_write) = mpsc::channel(1);
    tokio::spawn(gather(entries, batches, health));
    to_write
}

async fn gather(mut entries: mpsc::Receiver<Entry>, batches: mpsc::Sender<Batch>, health: Health) {
    let mut gathered = Gathered::default();
    let mut writing: Option<Writing> = None;
    let mut is_over = false;
    let mut came = Vec::new();
    while !is_over || !gathered.is_empty() || writing.is_some() {
        tokio::select! {
            biased;
            outcome = of(&mut writing) => {
                let waiting = writing.take().map(|writing| writing.waiting).unwrap_or_default();
                answer(waiting, &outcome);
            }
            count = entries.recv_many(&mut came, BATCH), if !is_over && gathered.events.len() < BATCH => {
                is_over = count == 0;
                came.drain(..).for_each(|entry| gathered.take(entry, &mut entries));
            }
            error = health.is_given_up(), if gathered.is_waited_for() || writing.as_ref().is_some_and(Writing::is_waited_for) => {
                gathered.give_up(writing.as_mut(), &error);
            }
        }
        if writing.is_none() && !gathered.is_empty() {
            gathered.look_for_more(&mut entries).await;
            writing = gathered.send(&batches).await;
        }
    }
}

/// What becomes of the batch at the writer.
async fn of(writing: &mut Option<Writing>) -> Result<(), StoreError> {
    match writing {
        Some(writing) => (&mut writing.outcome).await.unwrap_or(Err(StoreError::Closed)),
        None => pending().await,
    }
}

fn answer(waiting: Waiting, outcome: &Result<(), StoreError>) {
    for kept in waiting.into_iter().flatten() {
        // Nobody may be waiting any more: the record is kept all the same.
        drop(kept.send(outcome.clone()));
    }
}

/// Answers everybody who waits with an error, and returns what makes up for their events.
fn retract(events: &[Event], waiting: &mut Waiting, error: &StoreError) -> Vec<Event> {
    let answered = events.iter().zip(waiting).filter_map(|(event, waiting)| {
        let kept = waiting.take()?;
        kept.send(Err(error.clone())).ok().map(|()| event)
    });
    answered.flat_map(Event::retractions).collect()
}

fn is_waited_for(waiting: &Waiting) -> bool {
    waiting.iter().any(Option::is_some)
}

impl Writing {
    fn is_waited_for(&self) -> bool {
        is_waited_for(&self.waiting)
    }
}

impl Gathered {
    /// Answers everybody who waits that nothing can be written. What makes up for their events is written behind these.
    fn give_up(&mut self, writing: Option<&mut Writing>, error: &StoreError) {
        let mut retractions = match writing {
            Some(writing) => retract(&writing.events, &mut writing.waiting, error),
            None => Vec::new(),
        };
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
            Entry::NewSegment => self.in_new_segment = true,
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

    /// What ends while these are written makes the next batch.
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
