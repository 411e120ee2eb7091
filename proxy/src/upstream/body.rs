//! The body of an answer from a replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::Notify;

use super::http1::{AnswerBody, AnswerError, ReadLimits};
use super::{Replica, ServedBy};

/// The body of an answer. Its call counts as in flight until the body is dropped.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    body: AnswerBody,
    lease: Lease,
}

/// Counts a call as in flight until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) served_by: ServedBy,
    load: Arc<Load>,
}

/// The numbers of calls in flight and of calls held back, over all replicas.
#[derive(Debug, Default)]
pub(crate) struct Load {
    in_flight: AtomicUsize,
    held: AtomicUsize,
    none_under_way: Notify,
}

/// Counts a call as held back until it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a Load);

impl UpstreamBody {
    pub(super) fn new(body: AnswerBody, lease: Lease) -> Self {
        Self { body, lease }
    }

    /// Returns the replica that answers.
    pub(crate) fn served_by(&self) -> &ServedBy {
        &self.lease.served_by
    }

    /// Returns the next data. `None` is the end of the answer.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, AnswerError>>> {
        self.body.poll_data(cx)
    }

    /// Reads the answer to its end.
    pub(crate) async fn whole(self, limits: ReadLimits) -> Result<Bytes, AnswerError> {
        self.body.whole(limits).await
    }

    /// Notes that the reader needs no further data, so that the connection is kept for another request.
    pub(crate) fn needs_no_more(&mut self) {
        self.body.needs_no_more();
    }
}

impl Lease {
    pub(super) fn take(replica: Arc<Replica>, load: Arc<Load>) -> Self {
        replica.in_flight.fetch_add(1, Ordering::SeqCst);
        load.in_flight.fetch_add(1, Ordering::SeqCst);
        Self { served_by: ServedBy::new(replica), load }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let replica = &self.served_by.replica;
        if replica.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 && replica.is_draining() {
            // The last call of a draining replica has ended, so its watcher can remove the replica.
            replica.look.notify_one();
        }
        if self.load.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.load.none_under_way.notify_waiters();
        }
    }
}

impl Load {
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    pub(super) fn hold(&self) -> Held<'_> {
        self.held.fetch_add(1, Ordering::SeqCst);
        Held(self)
    }

    /// Resolves once no call is in flight.
    pub(crate) async fn ended(&self) {
        loop {
            let mut ended = std::pin::pin!(self.none_under_way.notified());
            // Registered before the count is read, so that the end of the last call in between is not missed.
            ended.as_mut().enable();
            if self.in_flight() == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::SeqCst);
    }
}
