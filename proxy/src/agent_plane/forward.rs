//! Forwards requests from a node of a cluster to the node that holds the shard.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body::Body;
use percent_encoding::{CONTROLS, utf8_percent_encode};

use crate::upstream::{AnswerBody, Connections, RequestHead, SendFailure, end_to_end, without_framing};

/// Marks a request that another node forwarded, with the number of the shard. A node that does not hold the shard never
/// forwards it again.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("x-rolltap-forwarded");
/// The time in which the other node must accept a connection. A dead host does not answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The body of a request that can be forwarded.
pub(crate) trait ForwardedBody: Body<Data = Bytes, Error: Display> + Send + Unpin + 'static {}

impl<B> ForwardedBody for B where B: Body<Data = Bytes, Error: Display> + Send + Unpin + 'static {}

/// Sends requests to other nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forwarder {
    nodes: Arc<Mutex<HashMap<Authority, Arc<Connections>>>>,
}

/// Why a request was not forwarded.
#[derive(Debug)]
pub(crate) enum ForwardError<B> {
    /// The other node could not be reached, and has got nothing of the request.
    Unreached(Box<Request<B>>),
    /// The other node got the request, or a part of it, and gave no answer.
    Broken(SendFailure),
}

impl Forwarder {
    /// Sends a request to the node at this authority, which holds the shard, and returns its answer. The bodies stream.
    pub(crate) async fn forward<B: ForwardedBody>(
        &self,
        request: Request<B>,
        shard: u32,
        to: &Authority,
    ) -> Result<Response<AnswerBody>, ForwardError<B>> {
        let (parts, mut body) = request.into_parts();
        let head = head_of(&parts, shard, to).map_err(ForwardError::Broken)?;
        match self.connections_to(to).stream(head, &mut body).await {
            Ok(mut answer) => {
                let headers = std::mem::take(answer.headers_mut());
                *answer.headers_mut() = without_framing(headers);
                Ok(answer)
            }
            Err(SendFailure::Connect(reason)) => {
                tracing::debug!(%reason, %to, "a node cannot be reached");
                Err(ForwardError::Unreached(Box::new(Request::from_parts(parts, body))))
            }
            Err(failure) => Err(ForwardError::Broken(failure)),
        }
    }

    /// Returns the connections to a node. For a new node, drops the entries of nodes to which no connection is open.
    fn connections_to(&self, node: &Authority) -> Arc<Connections> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = nodes.get(node) {
            return Arc::clone(connections);
        }
        nodes.retain(|_, connections| connections.has_idle() || Arc::strong_count(connections) > 1);
        let connections = Connections::plain(node.clone(), CONNECT_TIMEOUT);
        tokio::spawn(Connections::prune(Arc::downgrade(&connections)));
        nodes.insert(node.clone(), Arc::clone(&connections));
        connections
    }
}

/// Returns the head of a request that is forwarded, without its framing.
fn head_of(parts: &Parts, shard: u32, to: &Authority) -> Result<RequestHead, SendFailure> {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    // A URI may have characters beyond ASCII, and a request line may not.
    let target = Cow::from(utf8_percent_encode(target, CONTROLS));
    let mut head = RequestHead::new(&parts.method, host.unwrap_or(to.as_str()), "", &target)?;
    for (name, value) in end_to_end(&parts.headers).filter(|(name, _)| *name != header::HOST) {
        head.add(name, value);
    }
    head.add(&FORWARDED, &HeaderValue::from(shard));
    Ok(head)
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
        let mut names: Vec<_> = end_to_end(&headers).map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "host"]);
        let kept = without_framing(headers);
        let mut names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "host"]);
    }

    #[test]
    fn the_path_and_the_query_stay() {
        let node = Authority::from_static("10.0.0.1:7070");
        let head = |uri: &str, host: Option<&str>| {
            let mut request = Request::builder().uri(uri);
            if let Some(host) = host {
                request = request.header("host", host);
            }
            let (parts, ()) = request.header("x-a", "1").body(()).unwrap().into_parts();
            head_of(&parts, 3, &node).unwrap().text().to_owned()
        };
        assert_eq!(
            head("/t/k/v1/models?a=b", Some("agents")),
            "GET /t/k/v1/models?a=b HTTP/1.1\r\nhost: agents\r\nx-a: 1\r\nx-rolltap-forwarded: 3\r\n"
        );
        // The form of a request to an HTTP proxy names the server too.
        let head = head("http://agents/v1/\u{e4}", None);
        assert!(head.starts_with("GET /v1/%C3%A4 HTTP/1.1\r\nhost: 10.0.0.1:7070\r\n"), "{head}");
    }
}
