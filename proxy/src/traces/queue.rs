//! The queue of spans that wait for the collector.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::span::Span;
use crate::common::metrics::{DroppedSpans, SpanDrop};

/// The capacity of the queue, in items. An item is a call with its phases, about 4 KiB, or a trial.
pub(super) const CAPACITY: usize = 2048;
/// The minimum time between two warnings of dropped spans.
const WARNED_EVERY: Duration = Duration::from_secs(60);

/// The spans of one call or trial. They are sent or dropped together.
pub(super) type Item = Vec<Span>;

/// The sending half of the queue.
#[derive(Debug)]
pub(super) struct SpanQueue {
    items: mpsc::Sender<Item>,
    dropped: DroppedSpans,
    /// The time of the last warning.
    warned: Mutex<Option<Instant>>,
}

impl SpanQueue {
    pub(super) fn new(dropped: DroppedSpans) -> (Self, mpsc::Receiver<Item>) {
        let (items, waiting) = mpsc::channel(CAPACITY);
        (Self { items, dropped, warned: Mutex::default() }, waiting)
    }

    /// Adds an item without waiting, or drops it if the queue is full.
    pub(super) fn add(&self, item: Item) {
        let Err(TrySendError::Full(item) | TrySendError::Closed(item)) = self.items.try_send(item) else {
            return;
        };
        self.dropped.count(SpanDrop::QueueFull, item.len());
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() > WARNED_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(
                "spans are dropped: the OTLP collector takes them more slowly than they are made; record a share of the \
                 traces (OTEL_TRACES_SAMPLER=parentbased_traceidratio), or examine the collector"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::traces::SpanPlace;

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let dropped = DroppedSpans::default();
        let (queue, waiting) = SpanQueue::new(dropped.clone());
        let span =
            Span::new(SpanPlace::root(&["a"], true), None, "a", Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        for _ in 0..CAPACITY + 2 {
            queue.add(vec![span.clone(), span.clone()]);
        }
        assert_eq!(dropped.of(SpanDrop::QueueFull), 4);
        drop(waiting);
        queue.add(vec![span]);
        assert_eq!(dropped.of(SpanDrop::QueueFull), 5);
    }
}
