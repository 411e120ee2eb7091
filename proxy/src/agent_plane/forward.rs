//! Forwards requests from a node of a cluster to the node that holds the shard.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::uri::{Authority, Scheme, Uri};
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::BodyError;
use crate::upstream::without_framing;

/// Marks a request that another node forwarded, with the number of the shard. A node that does not hold the shard never
/// forwards it again.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("x-rolltap-forwarded");
/// The time in which the other node must accept a connection. A dead host does not answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection stays open without a request.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The body of a request that can be forwarded.
pub(crate) trait ForwardedBody:
    Body<Data = Bytes, Error: Into<BodyError>> + Send + Unpin + 'static
{
}

impl<B> ForwardedBody for B where B: Body<Data = Bytes, Error: Into<BodyError>> + Send + Unpin + 'static {}

/// Sends requests to other nodes.
#[derive(Debug)]
pub(crate) struct Forwarder<B> {
    client: Client<HttpConnector, LentBody<B>>,
}

impl<B> Clone for Forwarder<B> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone() }
    }
}

/// Why a request was not forwarded.
#[derive(Debug)]
pub(crate) enum ForwardError<B> {
    /// The other node could not be reached, and has got nothing of the request.
    Unreached(Box<Request<B>>),
    /// The other node got the request, or a part of it, and gave no answer.
    Broken(hyper_util::client::legacy::Error),
}

impl<B: ForwardedBody> Forwarder<B> {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(KEEP_ALIVE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self { client }
    }

    /// Sends a request to the node at this authority, which holds the shard, and returns its answer. The bodies stream.
    pub(crate) async fn forward(
        &self,
        request: Request<B>,
        shard: u32,
        to: &Authority,
    ) -> Result<Response<Incoming>, ForwardError<B>> {
        let (parts, body) = request.into_parts();
        let lent = LentBody::new(body);
        let mut sent = Request::new(lent.share());
        *sent.method_mut() = parts.method.clone();
        *sent.uri_mut() = uri_at(&parts, to);
        *sent.headers_mut() = without_framing(parts.headers.clone());
        sent.headers_mut().insert(FORWARDED, HeaderValue::from(shard));
        match self.client.request(sent).await {
            Ok(mut answer) => {
                let headers = std::mem::take(answer.headers_mut());
                *answer.headers_mut() = without_framing(headers);
                Ok(answer)
            }
            Err(error) => match lent.take() {
                Some(body) if error.is_connect() => {
                    Err(ForwardError::Unreached(Box::new(Request::from_parts(parts, body))))
                }
                _ => Err(ForwardError::Broken(error)),
            },
        }
    }
}

/// Returns the URI of a request at another authority, with the same path and query.
fn uri_at(parts: &Parts, to: &Authority) -> Uri {
    let mut uri = parts.uri.clone().into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(to.clone());
    uri.path_and_query.get_or_insert_with(|| http::uri::PathAndQuery::from_static("/"));
    // A URI with all three parts is valid.
    Uri::from_parts(uri).unwrap_or_default()
}

/// The body of a request, which can be taken back as long as no part of it was read.
#[derive(Debug)]
struct LentBody<B>(Arc<Mutex<Lent<B>>>);

#[derive(Debug)]
struct Lent<B> {
    body: Option<B>,
    is_read: bool,
}

impl<B> LentBody<B> {
    fn new(body: B) -> Self {
        Self(Arc::new(Mutex::new(Lent { body: Some(body), is_read: false })))
    }

    fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Takes the body back. `None` if a part of it was read.
    fn take(&self) -> Option<B> {
        let mut lent = self.lock();
        if lent.is_read { None } else { lent.body.take() }
    }

    fn lock(&self) -> MutexGuard<'_, Lent<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: ForwardedBody> Body for LentBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut lent = self.lock();
        lent.is_read = true;
        lent.body.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.lock().body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn headers_of_the_connection_are_not_forwarded() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("authorization", "Bearer a"),
            ("host", "agents"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let kept = without_framing(headers);
        let mut names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "host"]);
    }

    #[test]
    fn the_path_and_the_query_stay() {
        let request = Request::builder().uri("/t/k/v1/models?a=b").body(()).unwrap();
        let (parts, ()) = request.into_parts();
        let uri = uri_at(&parts, &Authority::from_static("10.0.0.1:7070"));
        assert_eq!(uri, "http://10.0.0.1:7070/t/k/v1/models?a=b");
    }
}
