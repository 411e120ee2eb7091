//! The agent plane's sockets: taking connections, and letting them finish.

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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::agent_plane::AgentPlane;

/// A client that has not sent its request's head within this time is gone or means harm.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Out of file descriptors and the like: connections that end make room.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds every address; the error names the one that failed.
pub(crate) async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, (SocketAddr, io::Error)> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for &address in addresses {
        listeners.push(TcpListener::bind(address).await.map_err(|error| (address, error))?);
    }
    Ok(listeners)
}

/// Serves until `stop`, then lets the calls under way finish. Dropping the future cuts them off.
pub(crate) async fn serve(
    listeners: Vec<TcpListener>,
    plane: Arc<AgentPlane>,
    max_connections: NonZeroUsize,
    stop: CancellationToken,
) {
    let connections = Arc::new(Semaphore::new(max_connections.get().min(Semaphore::MAX_PERMITS)));
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(listener, Arc::clone(&plane), Arc::clone(&connections), stop.clone()));
    }
    drop(plane);
    while accepting.join_next().await.is_some() {}
}

async fn accept(
    listener: TcpListener,
    plane: Arc<AgentPlane>,
    connections: Arc<Semaphore>,
    stop: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = next_connection(&listener, &connections) => match accepted {
                Ok((stream, permit)) => {
                    let served = connection(stream, Arc::clone(&plane), &graceful);
                    tasks.spawn(async move {
                        served.await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot take a connection of an agent");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            // Finished connections leave nothing behind.
            Some(_) = tasks.join_next() => {}
            () = stop.cancelled() => break,
        }
    }
    drop(listener);
    graceful.shutdown().await;
    while tasks.join_next().await.is_some() {}
}

/// Takes a connection once there is room for one: those that wait cost no memory here.
async fn next_connection(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = match Arc::clone(connections).try_acquire_owned() {
        Ok(permit) => permit,
        Err(_) => {
            tracing::warn!("agents hold as many connections as they may (--max-connections): others wait");
            Arc::clone(connections).acquire_owned().await.map_err(io::Error::other)?
        }
    };
    Ok((listener.accept().await?.0, permit))
}

fn connection(
    stream: TcpStream,
    plane: Arc<AgentPlane>,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + use<> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "an agent's connection has no TCP_NODELAY");
    }
    // Boxed, so that its memory goes when the answer begins: a stream lasts much longer than that.
    let service = service_fn(move |request| Box::pin(Arc::clone(&plane).answer(request)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let watched = graceful.watch(connection);
    async move {
        if let Err(error) = watched.await {
            tracing::debug!(%error, "an agent's connection ended");
        }
    }
}
