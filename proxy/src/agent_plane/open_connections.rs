//! The agents' connections, and the signals that end them.
//!
//! A connection that streams is polled for each token. With many connections, their memory is not in the processor's caches,
//! so a poll reads only a counter that all connections share, and its own signal once that counter has changed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use futures_util::task::AtomicWaker;

/// All connections of the agent plane.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections {
    connections: Mutex<Connections>,
    /// The number of signals to any connection.
    sent: AtomicUsize,
}

#[derive(Debug, Default)]
struct Connections {
    open: BTreeMap<u64, Arc<Control>>,
    /// The connections without a request of a trial so far, oldest first. If the limit of connections is reached, the oldest of these
    /// is closed. So an agent that opens connections without using them cannot exclude others.
    silent: BTreeSet<u64>,
    by_source: BTreeMap<Source, usize>,
    next: u64,
    is_draining: bool,
}

/// The source address of a connection, as far as it identifies a client. A client with IPv6 has a whole network of 64 bits,
/// so the first half of its address counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        // An IPv4 client of an IPv6 socket has a mapped address.
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into()),
        }
    }
}

/// A connection. It is silent until [`Self::speaks`], and leaves the list when it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    all: Arc<OpenConnections>,
    number: u64,
    source: Source,
    has_spoken: AtomicBool,
    control: Arc<Control>,
}

/// The signal to a connection, and the task that serves it.
#[derive(Debug, Default)]
struct Control {
    signal: AtomicU8,
    task: AtomicWaker,
}

/// Reads the signals of a connection in its task.
#[derive(Debug)]
pub(crate) struct Signals {
    all: Arc<OpenConnections>,
    control: Arc<Control>,
    /// The task that signals wake. `None` before the first poll.
    task: Option<Waker>,
    /// The number of signals to any connection before this connection's signal was read.
    sent: usize,
}

/// What a connection must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Continue = 0,
    /// Finish the request in flight, and take no other.
    Drain = 1,
    /// End at once.
    Close = 2,
}

impl OpenConnections {
    /// Adds a connection.
    pub(crate) fn add(self: &Arc<Self>, source: Source) -> OpenConnection {
        let mut connections = self.lock();
        let (number, control) = (connections.next, Arc::<Control>::default());
        connections.next += 1;
        connections.silent.insert(number);
        connections.open.insert(number, Arc::clone(&control));
        *connections.by_source.entry(source).or_default() += 1;
        if connections.is_draining {
            self.send(&control, Signal::Drain);
        }
        drop(connections);
        OpenConnection { all: Arc::clone(self), number, source, has_spoken: AtomicBool::new(false), control }
    }

    /// Returns the number of connections from this source.
    pub(crate) fn of_source(&self, source: Source) -> usize {
        self.lock().by_source.get(&source).copied().unwrap_or_default()
    }

    /// Closes the oldest silent connection. Returns false if there is none.
    pub(crate) fn close_oldest_silent(&self) -> bool {
        let mut connections = self.lock();
        let oldest = connections.silent.pop_first();
        let control = oldest.and_then(|oldest| connections.open.get(&oldest));
        control.map(|control| self.send(control, Signal::Close)).is_some()
    }

    /// Lets all connections finish, and those that are added later.
    pub(crate) fn drain(&self) {
        let mut connections = self.lock();
        connections.is_draining = true;
        connections.open.values().for_each(|control| self.send(control, Signal::Drain));
    }

    fn send(&self, control: &Control, signal: Signal) {
        // The signals are in the order of their urgency, and none is taken back.
        control.signal.fetch_max(signal as u8, Ordering::SeqCst);
        // A task that sees this number also sees the signal.
        self.sent.fetch_add(1, Ordering::SeqCst);
        control.task.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// Returns the most urgent signal so far.
    fn signal(&self) -> Signal {
        match self.signal.load(Ordering::SeqCst) {
            0 => Signal::Continue,
            1 => Signal::Drain,
            _ => Signal::Close,
        }
    }
}

impl Signals {
    /// Returns the most urgent signal if there may be a new one, and [`Signal::Continue`] otherwise. Each later signal wakes
    /// the task of this poll.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Signal {
        if self.task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
            self.control.task.register(cx.waker());
            self.task = Some(cx.waker().clone());
        } else if self.all.sent.load(Ordering::SeqCst) == self.sent {
            return Signal::Continue;
        }
        // The number is read first: a signal after it changes the number again.
        self.sent = self.all.sent.load(Ordering::SeqCst);
        self.control.signal()
    }
}

impl OpenConnection {
    /// Records that a request with the key of a trial has arrived. A request without one proves nothing about a client.
    pub(crate) fn speaks(&self) {
        // Every request comes here, but only the first one takes the lock that all connections share.
        if !self.has_spoken.swap(true, Ordering::Relaxed) {
            self.all.lock().silent.remove(&self.number);
        }
    }

    /// Returns the reader of the signals for the task of the connection, which has only one.
    pub(crate) fn signals(&self) -> Signals {
        Signals { all: Arc::clone(&self.all), control: Arc::clone(&self.control), task: None, sent: 0 }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut connections = self.all.lock();
        connections.open.remove(&self.number);
        // A connection that never sent a request is still listed here.
        connections.silent.remove(&self.number);
        if let Entry::Occupied(mut of_source) = connections.by_source.entry(self.source) {
            *of_source.get_mut() -= 1;
            if *of_source.get() == 0 {
                of_source.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Source {
        address.parse::<IpAddr>().unwrap().into()
    }

    fn local() -> Source {
        source("127.0.0.1")
    }

    #[test]
    fn connections_are_counted_by_their_source() {
        let all = Arc::new(OpenConnections::default());
        let sources =
            ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];
        let open = sources.map(|address| all.add(source(address)));
        assert_eq!(sources.map(|address| all.of_source(source(address))), [2, 2, 1, 2, 2, 1]);
        drop(open);
        assert_eq!(sources.map(|address| all.of_source(source(address))), [0; 6]);
        assert!(all.lock().by_source.is_empty());
    }

    #[test]
    fn the_oldest_without_a_request_is_closed() {
        let all = Arc::new(OpenConnections::default());
        let [gone, speaking, silent] = [all.add(local()), all.add(local()), all.add(local())];
        drop(gone);
        speaking.speaks();
        assert!(all.close_oldest_silent());
        assert_eq!((silent.control.signal(), speaking.control.signal()), (Signal::Close, Signal::Continue));
        assert!(!all.close_oldest_silent());
    }

    #[test]
    fn all_connections_drain_and_those_that_come_later() {
        let all = Arc::new(OpenConnections::default());
        let [first, closed] = [all.add(local()), all.add(local())];
        first.speaks();
        assert!(all.close_oldest_silent());
        all.drain();
        assert_eq!(
            [&first, &all.add(local()), &closed].map(|connection| connection.control.signal()),
            [Signal::Drain, Signal::Drain, Signal::Close]
        );
    }

    #[tokio::test]
    async fn a_signal_wakes_the_task_of_the_connection() {
        let all = Arc::new(OpenConnections::default());
        let connection = all.add(local());
        let mut signals = connection.signals();
        let signal = std::future::poll_fn(|cx| match signals.poll(cx) {
            Signal::Continue => std::task::Poll::Pending,
            signal => std::task::Poll::Ready(signal),
        });
        let (signal, ()) = tokio::join!(signal, async {
            tokio::task::yield_now().await;
            all.drain();
        });
        assert_eq!(signal, Signal::Drain);
    }

    #[tokio::test]
    async fn a_signal_is_read_once_and_by_its_connection_alone() {
        // The waker of a task is recognised again. That of `Waker::noop` may differ from its clone by the address of its vtable.
        let polls = tokio::spawn(std::future::poll_fn(|cx| {
            let all = Arc::new(OpenConnections::default());
            let (first, second) = (all.add(local()), all.add(local()));
            let (mut signals, mut of_second) = (first.signals(), second.signals());
            let mut polled = || [signals.poll(cx), of_second.poll(cx)];
            assert_eq!(polled(), [Signal::Continue; 2]);
            assert!(all.close_oldest_silent());
            assert_eq!(polled(), [Signal::Close, Signal::Continue]);
            assert_eq!(polled(), [Signal::Continue; 2]);
            all.drain();
            assert_eq!(polled(), [Signal::Close, Signal::Drain]);
            std::task::Poll::Ready(())
        }));
        polls.await.unwrap();
    }

    #[test]
    fn a_signal_before_the_first_poll_is_read() {
        let all = Arc::new(OpenConnections::default());
        all.drain();
        let late = all.add(local());
        assert_eq!(late.signals().poll(&Context::from_waker(Waker::noop())), Signal::Drain);
    }
}
