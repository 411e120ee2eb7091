//! The connections to one server: new ones, and those that wait for their next request.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::Authority;
use http::{Response, Uri};
use http_body::Body;
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use tower::ServiceExt;

use super::answer_body::AnswerBody;
use super::connection::exchange;
use super::framing::Framing;
use super::handshake::ServerTls;
use super::request::{Request, RequestHead, WholeHead};
use crate::common::tls::NetStream;
use crate::upstream::HttpProxy;
use crate::upstream::send_error::{SendFailure, root_cause};

/// The timeout of each step of a connection attempt to an upstream. A server that takes longer is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// vLLM closes a connection that was idle for 5 s (`VLLM_HTTP_TIMEOUT_KEEP_ALIVE`). The proxy closes idle connections
/// earlier, so that no call is sent on a connection that is just closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The time between two examinations of the idle connections.
const PRUNED_EVERY: Duration = Duration::from_secs(1);

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct Connections {
    server: Authority,
    /// `None` for a server without TLS.
    tls: Option<ServerTls>,
    connector: HttpConnector,
    /// The timeout of each step of a connection attempt.
    connect_timeout: Duration,
    /// `None` for direct connections.
    http_proxy: Option<HttpProxy>,
    /// The number of connections so far.
    opened: AtomicUsize,
    /// The connections without a call in flight. The last one was used last.
    idle: Mutex<Vec<IdleConnection>>,
}

/// A connection whose last answer was read to its last useful byte.
#[derive(Debug)]
struct IdleConnection {
    stream: NetStream,
    /// The rest of the last answer: nothing, or the end of its framing.
    rest: Framing,
    since: Instant,
}

/// Whether an idle connection can carry a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// The end of the last answer has not arrived.
    Unfinished,
    /// The server closed the connection, or sent bytes that no request asked for.
    Unusable,
}

impl Connections {
    pub(in crate::upstream) fn to(
        server: Authority,
        tls: Option<ServerTls>,
        http_proxy: Option<HttpProxy>,
    ) -> Arc<Self> {
        Self::new(server, tls, http_proxy, CONNECT_TIMEOUT)
    }

    /// Returns direct connections without TLS, with another timeout of a connection attempt.
    pub(crate) fn plain(server: Authority, connect_timeout: Duration) -> Arc<Self> {
        Self::new(server, None, None, connect_timeout)
    }

    fn new(
        server: Authority,
        tls: Option<ServerTls>,
        http_proxy: Option<HttpProxy>,
        connect_timeout: Duration,
    ) -> Arc<Self> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        let (opened, idle) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { server, tls, connector, connect_timeout, http_proxy, opened, idle })
    }

    /// Sends a request, and returns the head of the answer.
    pub(in crate::upstream) async fn request(
        self: &Arc<Self>,
        request: &Request,
    ) -> Result<Response<AnswerBody>, SendFailure> {
        self.send(&request.head, Full::new(request.body.clone())).await
    }

    /// Sends a request whose body arrives in pieces, and returns the head of the answer. The body is not read before there
    /// is a connection.
    pub(crate) async fn stream<B>(
        self: &Arc<Self>,
        head: RequestHead,
        body: &mut B,
    ) -> Result<Response<AnswerBody>, SendFailure>
    where
        B: Body<Data = Bytes, Error: Display> + Unpin,
    {
        self.send(&head.before(body), body).await
    }

    async fn send<B>(self: &Arc<Self>, head: &WholeHead, body: B) -> Result<Response<AnswerBody>, SendFailure>
    where
        B: Body<Data = Bytes, Error: Display> + Unpin,
    {
        let mut stream = match self.take() {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        let answered = exchange(&mut stream, head, body).await.inspect_err(|failure| {
            // The server has probably closed the other connections too, for example by a restart.
            if matches!(failure, SendFailure::Closed(_)) {
                self.close();
            }
        })?;
        let (parts, body) = AnswerBody::of(answered, stream, Arc::clone(self));
        Ok(Response::from_parts(parts, body))
    }

    /// Returns the number of connections so far.
    pub(in crate::upstream) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    /// Whether there is a connection without a call in flight.
    pub(crate) fn has_idle(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Closes the idle connections.
    pub(in crate::upstream) fn close(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    /// Closes idle connections that are too old or unusable, until the last reference to `connections` drops. No task
    /// polls an idle connection, so nothing else notices its end.
    pub(crate) async fn prune(connections: Weak<Self>) {
        let mut due = tokio::time::interval(PRUNED_EVERY);
        loop {
            due.tick().await;
            let Some(connections) = connections.upgrade() else { return };
            connections.close_unusable();
        }
    }

    fn close_unusable(&self) {
        let mut idle = self.lock();
        close_old(&mut idle);
        idle.retain_mut(|connection| connection.readiness() != Readiness::Unusable);
    }

    /// Adds a connection whose answer needs no further byte. `rest` is the end of the answer's framing.
    pub(super) fn put(&self, stream: NetStream, rest: Framing) {
        let mut idle = self.lock();
        close_old(&mut idle);
        idle.push(IdleConnection { stream, rest, since: Instant::now() });
    }

    /// Takes the ready connection that was used last.
    fn take(&self) -> Option<NetStream> {
        let mut idle = self.lock();
        close_old(&mut idle);
        let mut at = idle.len();
        while let Some(before) = at.checked_sub(1) {
            at = before;
            match idle.get_mut(at)?.readiness() {
                Readiness::Ready => return Some(idle.remove(at).stream),
                Readiness::Unfinished => {}
                Readiness::Unusable => drop(idle.remove(at)),
            }
        }
        None
    }

    /// Returns the state of each idle connection that is not unusable.
    #[cfg(test)]
    pub(super) fn idle_states(&self) -> Vec<Readiness> {
        self.close_unusable();
        self.lock().iter_mut().map(IdleConnection::readiness).collect()
    }

    async fn connect(&self) -> Result<NetStream, SendFailure> {
        // The scheme decides the port of a server without one.
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let uri = Uri::builder().scheme(scheme).authority(self.server.clone()).path_and_query("/").build();
        let uri = uri.map_err(|error| SendFailure::Broken(error.to_string()))?;
        let (connector, patience) = (self.connector.clone(), self.connect_timeout);
        let connected = match &self.http_proxy {
            None => connector.oneshot(uri).await.map_err(|error| root_cause(&error)),
            // The connector limits the time of the connection to the HTTP proxy alone.
            Some(proxy) => match tokio::time::timeout(patience, proxy.connect(connector, uri)).await {
                Ok(connected) => connected,
                Err(_) => Err(format!("the HTTP proxy {proxy} does not connect within {patience:?}")),
            },
        };
        let stream = connected.map_err(SendFailure::Connect)?.into_inner();
        self.opened.fetch_add(1, Ordering::Relaxed);
        let Some(tls) = &self.tls else { return Ok(NetStream::Plain(stream)) };
        match tokio::time::timeout(patience, tls.handshake(stream)).await {
            Ok(connected) => connected.map_err(SendFailure::Connect),
            Err(_) => Err(SendFailure::Connect(format!("no TLS handshake within {patience:?}"))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdleConnection {
    /// Reads what has arrived since the last call.
    fn readiness(&mut self) -> Readiness {
        let mut bytes = [0; 64];
        loop {
            match self.stream.try_read(&mut bytes) {
                None => return if self.rest.is_done() { Readiness::Ready } else { Readiness::Unfinished },
                Some(Ok(count)) if count > 0 && self.ends_with(bytes.get(..count).unwrap_or_default()) => {}
                Some(_) => return Readiness::Unusable,
            }
        }
    }

    /// Whether these bytes belong to the end of the last answer, and are no data.
    fn ends_with(&mut self, bytes: &[u8]) -> bool {
        let mut data = Vec::new();
        self.rest.decode(bytes, &mut data) == Ok(bytes.len()) && data.is_empty()
    }
}

/// Closes the connections that have been idle for too long. They come first in the list.
fn close_old(idle: &mut Vec<IdleConnection>) {
    let now = Instant::now();
    let is_old = |connection: &IdleConnection| now.duration_since(connection.since) > IDLE_TIMEOUT;
    let old = idle.partition_point(is_old);
    idle.drain(..old);
}
