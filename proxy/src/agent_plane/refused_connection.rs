//! Connections over the limit of their source address: the first request is answered with the reason, and the connection
//! ends.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use crate::agent_plane::error::AgentError;
use crate::agent_plane::{identity, request_body};
use crate::common::tls::AcceptedStream;
use crate::dialect::error_shape::ErrorShape;

/// The refused connections that are answered at the same time. Further ones are closed without an answer, because an
/// answer takes memory, and a flood must not.
const MOST_ANSWERED: usize = 64;
/// The longest time of a refused connection.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest time for the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers refused connections.
#[derive(Clone, Debug)]
pub(super) struct RefusedConnections {
    places: Arc<Semaphore>,
}

impl RefusedConnections {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST_ANSWERED)) }
    }

    /// Serves a connection whose source address has `limit` connections already.
    pub(super) async fn answer(self, stream: AcceptedStream, limit: NonZeroUsize) {
        let Ok(_place) = self.places.try_acquire_owned() else { return };
        let service = service_fn(async |request: Request<Incoming>| {
            let (parts, mut body) = request.into_parts();
            request_body::discard(&parts.headers, &mut body).await;
            let (_, path) = identity::split_path(parts.uri.path());
            let error = AgentError::too_many_connections(limit);
            Ok::<_, Infallible>(error.into_response(ErrorShape::of_path(path)))
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // The client may have left, or sends nothing in time. Neither needs a line in the log.
        let _ = tokio::time::timeout(LONGEST, serving).await;
    }
}
