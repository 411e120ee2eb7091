//! The sockets of the agent plane: accepts connections, and lets them finish at shutdown.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::agent_plane::AgentPlane;
use crate::agent_plane::silent_connections::{Connection, SilentConnections};

/// The longest time for the head of a request. A slower client has vanished or is hostile.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a failed accept, for example if file descriptors run out. Connections that end free some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds every address. The error contains the address that failed.
pub(crate) async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, (SocketAddr, io::Error)> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for &address in addresses {
        listeners.push(TcpListener::bind(address).await.map_err(|error| (address, error))?);
    }
    Ok(listeners)
}

/// Serves until `stop`, and then waits for the calls in flight. Dropping the future cuts them off.
pub(crate) async fn serve(
    listeners: Vec<TcpListener>,
    plane: Arc<AgentPlane>,
    max_connections: NonZeroUsize,
    stop: CancellationToken,
) {
    let room = ConnectionPermits {
        connections: Arc::new(Semaphore::new(max_connections.get().min(Semaphore::MAX_PERMITS))),
        silent: Arc::default(),
    };
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(listener, Arc::clone(&plane), room.clone(), stop.clone()));
    }
    drop(plane);
    while accepting.join_next().await.is_some() {}
}

async fn accept(
    listener: TcpListener,
    plane: Arc<AgentPlane>,
    room: ConnectionPermits,
    stop: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    // An accepted connection without a permit. While there is one, no other connection is accepted.
    let mut waiting = None;
    loop {
        tokio::select! {
            accepted = listener.accept(), if waiting.is_none() => match accepted {
                Ok((stream, _)) => {
                    room.make();
                    waiting = Some(stream);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot take a connection of an agent");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Ok(permit) = Arc::clone(&room.connections).acquire_owned(), if waiting.is_some() => {
                let Some(stream) = waiting.take() else { continue };
                let served = connection(stream, room.silent.add(), Arc::clone(&plane), &graceful);
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
    graceful.shutdown().await;
    while tasks.join_next().await.is_some() {}
}

/// Permits for connections. The listeners share them.
#[derive(Clone, Debug)]
struct ConnectionPermits {
    /// One permit per connection.
    connections: Arc<Semaphore>,
    silent: Arc<SilentConnections>,
}

impl ConnectionPermits {
    /// Frees a permit if none is available: closes the oldest connection without a request. If every connection has had
    /// a request, the next connection waits until another ends.
    fn make(&self) {
        if self.connections.available_permits() > 0 {
            return;
        }
        let what =
            if self.silent.close_oldest() { "the oldest without a request is closed" } else { "others wait" };
        tracing::warn!("agents hold as many connections as they may (--max-connections): {what}");
    }
}

fn connection(
    stream: TcpStream,
    connection: Connection,
    plane: Arc<AgentPlane>,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + use<> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "an agent's connection has no TCP_NODELAY");
    }
    // Boxed, so that the memory of the future is freed when the answer begins: a stream lasts much longer.
    let connection = Arc::new(connection);
    let of_service = Arc::clone(&connection);
    let service = service_fn(move |request| {
        of_service.speaks();
        Box::pin(Arc::clone(&plane).answer(request))
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let watched = graceful.watch(serving);
    async move {
        tokio::select! {
            served = watched => {
                if let Err(error) = served {
                    tracing::debug!(%error, "an agent's connection ended");
                }
            }
            () = connection.closed() => {}
        }
    }
}
