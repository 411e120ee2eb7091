//! The sockets of the agent plane: accepts connections, and lets them finish at shutdown.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::agent_plane::open_connections::{OpenConnection, OpenConnections, Signal, Source};
use crate::agent_plane::refused_connection::RefusedConnections;
use crate::agent_plane::responder::Responder;
use crate::common::log_limit::LogLimit;
use crate::common::refusal_counts::{ConnectionCause, RefusalCounts};
use crate::common::tls::{AcceptedStream, ServedTls};

/// The longest time for the head of a request. A slower client has vanished or is hostile.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a failed accept, for example if file descriptors run out. Connections that end free some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The lines about a limit of connections that are logged at once, and the time for each further one.
const LINES_AT_ONCE: u32 = 5;
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The limits of the connections of agents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// The largest number of connections.
    pub(crate) all: NonZeroUsize,
    /// The largest number of connections from one source address. `None` for no limit.
    pub(crate) of_address: Option<NonZeroUsize>,
}

/// Binds every address. The error contains the address that failed.
pub(crate) async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, (SocketAddr, io::Error)> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for &address in addresses {
        listeners.push(TcpListener::bind(address).await.map_err(|error| (address, error))?);
    }
    Ok(listeners)
}

/// The sockets of the agent plane, and the rules for their connections.
#[derive(Debug)]
pub(crate) struct AgentListeners {
    pub(crate) listeners: Vec<TcpListener>,
    /// `None` for HTTP without TLS.
    pub(crate) tls: Option<Arc<ServedTls>>,
    pub(crate) limits: ConnectionLimits,
}

/// Serves until `stop`, and then waits for the calls in flight. Dropping the future cuts them off.
pub(crate) async fn serve(
    agents: AgentListeners,
    responder: Responder,
    counts: RefusalCounts,
    stop: CancellationToken,
) {
    let AgentListeners { listeners, tls, limits } = agents;
    let room = ConnectionPermits {
        connections: Arc::new(Semaphore::new(limits.all.get().min(Semaphore::MAX_PERMITS))),
        of_address: limits.of_address,
        open: Arc::default(),
        refused: RefusedConnections::new(),
        counts,
        lines: Arc::new(LogLimit::new(LINES_AT_ONCE, LINE_INTERVAL)),
    };
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let listener = AgentListener { listener, tls: tls.clone() };
        accepting.spawn(accept(listener, responder.clone(), room.clone(), stop.clone()));
    }
    drop(responder);
    while accepting.join_next().await.is_some() {}
}

/// One socket of the agent plane.
#[derive(Debug)]
struct AgentListener {
    listener: TcpListener,
    tls: Option<Arc<ServedTls>>,
}

impl AgentListener {
    async fn accept(&self) -> io::Result<(AcceptedStream, SocketAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "an agent's connection has no TCP_NODELAY");
        }
        Ok((AcceptedStream::new(stream, self.tls.clone()), peer))
    }
}

async fn accept(
    listener: AgentListener,
    responder: Responder,
    room: ConnectionPermits,
    stop: CancellationToken,
) {
    let mut tasks = JoinSet::new();
    // An accepted connection without a permit. While there is one, no other connection is accepted.
    let mut waiting = None;
    loop {
        tokio::select! {
            accepted = listener.accept(), if waiting.is_none() => match accepted {
                Ok((stream, peer)) => {
                    let source = Source::from(peer.ip());
                    if let Some(limit) = room.limit_reached_by(source) {
                        room.log_refused(peer, limit);
                        tasks.spawn(room.refused.clone().answer(stream, limit));
                    } else {
                        room.make();
                        waiting = Some((stream, source));
                    }
                }
                Err(error) => {
                    if let Some(line) = room.lines.admit(Instant::now()) {
                        let suppressed = line.suppressed;
                        tracing::warn!(%error, suppressed, "cannot take a connection of an agent");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Ok(permit) = Arc::clone(&room.connections).acquire_owned(), if waiting.is_some() => {
                let Some((stream, source)) = waiting.take() else { continue };
                let served = connection(stream, room.open.add(source), responder.clone());
                tasks.spawn(async move {
                    served.await;
                    drop(permit);
                });
            }
            // Finished tasks are removed, so that the set does not grow for as long as the proxy runs.
            Some(_) = tasks.join_next() => {}
            () = stop.cancelled() => break,
        }
    }
    drop(listener);
    room.open.drain();
    while tasks.join_next().await.is_some() {}
}

/// Permits for connections. The listeners share them.
#[derive(Clone, Debug)]
struct ConnectionPermits {
    /// One permit per connection.
    connections: Arc<Semaphore>,
    of_address: Option<NonZeroUsize>,
    open: Arc<OpenConnections>,
    refused: RefusedConnections,
    counts: RefusalCounts,
    lines: Arc<LogLimit>,
}

impl ConnectionPermits {
    /// Returns the limit of connections per source address if this source has reached it.
    fn limit_reached_by(&self, source: Source) -> Option<NonZeroUsize> {
        self.of_address.filter(|limit| self.open.of_source(source) >= limit.get())
    }

    fn log_refused(&self, peer: SocketAddr, limit: NonZeroUsize) {
        self.counts.connection(ConnectionCause::Address);
        if let Some(line) = self.lines.admit(Instant::now()) {
            let suppressed = line.suppressed;
            tracing::warn!(%peer, %limit, suppressed, "refused a connection of an agent: its address has as many as it may (--max-connections-per-address)");
        }
    }

    /// Frees a permit if none is available: closes the oldest connection without a request of a trial. If every
    /// connection has had one, the next connection waits until another ends.
    fn make(&self) {
        if self.connections.available_permits() > 0 {
            return;
        }
        let has_closed = self.open.close_oldest_silent();
        if has_closed {
            self.counts.connection(ConnectionCause::Silent);
        }
        if let Some(line) = self.lines.admit(Instant::now()) {
            let effect = if has_closed { "the oldest without a key is closed" } else { "others wait" };
            let suppressed = line.suppressed;
            tracing::warn!(
                suppressed,
                "agents hold as many connections as they may (--max-connections): {effect}"
            );
        }
    }
}

/// Serves a connection until it ends, or until its signal ends it.
async fn connection(stream: AcceptedStream, connection: OpenConnection, responder: Responder) {
    // Boxed, so that the memory of the future is freed when the answer begins: a stream lasts much longer.
    let connection = Arc::new(connection);
    let mut signals = connection.signals();
    let service =
        service_fn(move |request| Box::pin(responder.clone().answer(request, Arc::clone(&connection))));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let mut is_draining = false;
    let served = poll_fn(|cx| {
        match signals.poll(cx) {
            Signal::Close => return Poll::Ready(Ok(())),
            Signal::Drain if !is_draining => {
                is_draining = true;
                serving.as_mut().graceful_shutdown();
            }
            Signal::Drain | Signal::Continue => {}
        }
        serving.as_mut().poll(cx)
    });
    if let Err(error) = served.await {
        tracing::debug!(%error, "an agent's connection ended");
    }
}
