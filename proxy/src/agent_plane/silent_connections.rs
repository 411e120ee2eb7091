//! Connections without a request so far. If the limit of connections is reached, the oldest of these is closed. So an
//! agent that opens connections without using them cannot exclude others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The connections without a request, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SilentConnections(Mutex<Connections>);

#[derive(Debug, Default)]
struct Connections {
    silent: BTreeMap<u64, CancellationToken>,
    next: u64,
}

/// A connection. It is silent until [`Self::speaks`].
#[derive(Debug)]
pub(crate) struct Connection {
    all: Arc<SilentConnections>,
    number: u64,
    has_spoken: AtomicBool,
    closed: CancellationToken,
}

impl SilentConnections {
    /// Adds a connection.
    pub(crate) fn add(self: &Arc<Self>) -> Connection {
        let mut connections = self.lock();
        let (number, closed) = (connections.next, CancellationToken::new());
        connections.next += 1;
        connections.silent.insert(number, closed.clone());
        drop(connections);
        Connection { all: Arc::clone(self), number, has_spoken: AtomicBool::new(false), closed }
    }

    /// Closes the oldest silent connection. Returns false if there is none.
    pub(crate) fn close_oldest(&self) -> bool {
        let oldest = self.lock().silent.pop_first();
        oldest.map(|(_, connection)| connection.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Records that a request has arrived.
    pub(crate) fn speaks(&self) {
        // Every request comes here, but only the first one takes the lock that all connections share.
        if !self.has_spoken.swap(true, Ordering::Relaxed) {
            self.all.lock().silent.remove(&self.number);
        }
    }

    /// Resolves when the connection must close to make room for another.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A connection that never sent a request is still listed.
        self.all.lock().silent.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_oldest_that_has_said_nothing_is_closed() {
        let all = Arc::new(SilentConnections::default());
        let [gone, speaking, silent] = [all.add(), all.add(), all.add()];
        drop(gone);
        speaking.speaks();
        assert!(all.close_oldest());
        assert!(silent.closed().now_or_never().is_some() && speaking.closed().now_or_never().is_none());
        assert!(!all.close_oldest());
    }
}
