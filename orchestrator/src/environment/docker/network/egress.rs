//! The HTTP proxy for containers that may reach only some hosts. It listens on the gateway of their network.
//!
//! It forwards `CONNECT` tunnels and plain HTTP requests to hosts that the container's trial allows. It answers every
//! other request with 403 and the reason. The source address identifies the container. A container cannot forge it,
//! since it has no raw sockets and may not configure its network.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderName, HeaderValue, PROXY_AUTHORIZATION, TE, TRAILER, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::task::network_policy::AllowedHosts;

/// The most concurrent connections of one container. Further ones wait.
const AT_ONCE: usize = 256;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

type EgressBody = Either<Incoming, Full<Bytes>>;

/// The proxy of a job. It ends when this value is dropped.
pub(crate) struct Egress {
    pub(crate) address: SocketAddr,
    permits: Arc<Permits>,
    _stop: DropGuard,
}

/// The permits, by the container's address.
type Permits = Mutex<HashMap<IpAddr, Permit>>;

#[derive(Clone)]
struct Permit {
    hosts: AllowedHosts,
    /// Ends the container's connections when the permit is revoked.
    revoked: CancellationToken,
    connections: Arc<Semaphore>,
}

/// Whether the proxy must never connect to an address, whatever the task allows.
pub(crate) type ForbiddenAddresses = fn(IpAddr) -> bool;

impl Egress {
    pub(crate) async fn start(gateway: IpAddr, refusal: ForbiddenAddresses) -> io::Result<Self> {
        let listener = TcpListener::bind((gateway, 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let permits = Arc::<Permits>::default();
        tokio::spawn(serve(listener, Arc::clone(&permits), refusal, stop.clone()));
        Ok(Self { address, permits, _stop: stop.drop_guard() })
    }

    /// Allows the container at this address these hosts and no others, from now on.
    pub(crate) fn permit(&self, container: IpAddr, hosts: AllowedHosts) {
        let revoked = CancellationToken::new();
        let permit = Permit { hosts, revoked, connections: Arc::new(Semaphore::new(AT_ONCE)) };
        self.replace(container, Some(permit));
    }

    /// Denies the container at this address every host from now on, and ends its connections.
    pub(crate) fn revoke(&self, container: IpAddr) {
        self.replace(container, None);
    }

    fn replace(&self, container: IpAddr, permit: Option<Permit>) {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match permit {
            Some(permit) => permits.insert(container, permit),
            None => permits.remove(&container),
        };
        // Cancelled outside the lock, since it wakes the tasks of the connections.
        drop(permits);
        if let Some(before) = before {
            before.revoked.cancel();
        }
    }
}

/// Whether an address belongs to this host, or to no single host. Containers must not reach services of this host
/// through its gateway.
pub(crate) fn is_of_this_host(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let special = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    // Binding succeeds only for an address of this host.
    special || link_local || UdpSocket::bind((address, 0)).is_ok()
}

async fn serve(
    listener: TcpListener,
    permits: Arc<Permits>,
    refusal: ForbiddenAddresses,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, peer)) = accepted else {
            // Most likely there are no free file descriptors. Others will be closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let of_peer = permits.lock().unwrap_or_else(PoisonError::into_inner).get(&peer.ip()).cloned();
        let stop = stop.clone();
        tokio::spawn(async move {
            // Without a permit, only the end of the proxy ends the connection.
            let ended = of_peer.as_ref().map_or_else(|| stop.clone(), |permit| permit.revoked.clone());
            tokio::select! {
                () = converse(stream, of_peer, refusal) => {}
                () = ended.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn converse(stream: TcpStream, permit: Option<Permit>, refusal: ForbiddenAddresses) {
    let connections = permit.as_ref().map(|permit| Arc::clone(&permit.connections));
    let _place = match &connections {
        Some(connections) => connections.acquire().await.ok(),
        None => None,
    };
    let service = service_fn(|request| {
        let permit = permit.clone();
        async move {
            let answer = match permit {
                Some(permit) => pass(request, &permit, refusal).await,
                None => Err(Refused::forbidden("this container may reach no host")),
            };
            Ok::<_, std::convert::Infallible>(answer.unwrap_or_else(Refused::into_response))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection of a container to the egress proxy ended early");
    }
}

struct Refused {
    status: StatusCode,
    why: String,
}

impl Refused {
    fn forbidden(why: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, why: why.into() }
    }

    fn unreachable(host: &str, why: impl std::fmt::Display) -> Self {
        Self { status: StatusCode::BAD_GATEWAY, why: format!("{host} cannot be reached: {why}") }
    }

    fn into_response(self) -> Response<EgressBody> {
        let text = format!("rolltap's egress proxy: {}\n", self.why);
        let mut response = Response::new(Either::Right(Full::from(text)));
        *response.status_mut() = self.status;
        response
    }
}

async fn pass(
    request: Request<Incoming>,
    permit: &Permit,
    refusal: ForbiddenAddresses,
) -> Result<Response<EgressBody>, Refused> {
    let uri = request.uri();
    let is_tunnel = request.method() == Method::CONNECT;
    let Some(host) = uri.host().filter(|_| is_tunnel || uri.scheme_str() == Some("http")) else {
        let why = "this is an HTTP proxy: it takes CONNECT and http:// URLs".to_owned();
        return Err(Refused { status: StatusCode::BAD_REQUEST, why });
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if is_tunnel { 443 } else { 80 });
    let stream = reach(&host, port, permit, refusal).await?;
    if is_tunnel {
        Ok(tunnel(request, stream, permit))
    } else {
        forward(request, stream, permit, &host).await
    }
}

async fn reach(
    host: &str,
    port: u16,
    permit: &Permit,
    refusal: ForbiddenAddresses,
) -> Result<TcpStream, Refused> {
    let not_allowed = || Refused::forbidden(format!("{host} is not among the task's allowed_hosts"));
    let by_name = permit.hosts.allow_name(host);
    // A name that cannot be allowed is not looked up, since a lookup can carry data out.
    if !by_name && !permit.hosts.have_addresses() {
        return Err(not_allowed());
    }
    let found = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => {
            let looked_up = tokio::net::lookup_host((host, port)).await;
            looked_up.map_err(|error| Refused::unreachable(host, error))?.collect()
        }
    };
    // The connection uses the checked addresses, so that a second lookup cannot change them.
    let allowed = |address: &SocketAddr| by_name || permit.hosts.allow_address(address.ip().to_canonical());
    let found: Vec<_> = found.into_iter().filter(allowed).collect();
    if found.is_empty() {
        return Err(not_allowed());
    }
    let fit: Vec<_> = found.into_iter().filter(|address| !refusal(address.ip())).collect();
    if fit.is_empty() {
        return Err(Refused::forbidden(format!("{host} is the host that runs the containers")));
    }
    match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(fit.as_slice())).await {
        Ok(stream) => stream.map_err(|error| Refused::unreachable(host, error)),
        Err(_) => Err(Refused::unreachable(host, format_args!("no answer within {CONNECT_TIMEOUT:?}"))),
    }
}

/// Answers, then copies bytes in both directions until the permit is revoked. The content is not inspected.
fn tunnel(request: Request<Incoming>, mut stream: TcpStream, permit: &Permit) -> Response<EgressBody> {
    let revoked = permit.revoked.clone();
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let mut inside = TokioIo::new(upgraded);
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut inside, &mut stream) => {}
            () = revoked.cancelled() => {}
        }
    });
    Response::new(Either::Right(Full::default()))
}

/// Forwards one request on a connection of its own, since the next request may be for another host.
async fn forward(
    mut request: Request<Incoming>,
    stream: TcpStream,
    permit: &Permit,
    host: &str,
) -> Result<Response<EgressBody>, Refused> {
    let failed = |error: hyper::Error| Refused::unreachable(host, error);
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    // A server, unlike a proxy, expects the path alone.
    *request.uri_mut() = path.parse::<Uri>().unwrap_or_default();
    remove_hop_by_hop(request.headers_mut());
    // The URL decides the host, not a `Host` header of the client.
    if let Some(value) = authority.and_then(|authority| HeaderValue::from_str(&authority).ok()) {
        request.headers_mut().insert(HOST, value);
    }
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let revoked = permit.revoked.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = connection => {}
            () = revoked.cancelled() => {}
        }
    });
    let mut response = sender.send_request(request).await.map_err(failed)?;
    remove_hop_by_hop(response.headers_mut());
    Ok(response.map(Either::Left))
}

/// Removes the headers that concern one connection and not the message (RFC 9110, section 7.6.1).
fn remove_hop_by_hop(headers: &mut hyper::HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, UPGRADE, TE, TRAILER, PROXY_AUTHORIZATION] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests;
