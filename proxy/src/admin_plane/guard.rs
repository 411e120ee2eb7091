//! Who may call the admin plane: with a token whoever bears it, without one the programs of this machine.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::AdminPlane;
use super::error::AdminError;

pub(super) async fn admit(State(plane): State<Arc<AdminPlane>>, request: Request, next: Next) -> Response {
    let admitted = match &plane.token {
        Some(token) => bears(&request, token),
        None => is_no_web_page(&request),
    };
    match admitted {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn bears(request: &Request, token: &str) -> Result<(), AdminError> {
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    // Of equal hashes, not of equal text: how long the comparison takes tells nothing about the token.
    let is_right = given.is_some_and(|given| Sha256::digest(given) == Sha256::digest(token));
    if is_right { Ok(()) } else { Err(AdminError::unauthorized()) }
}

/// Without a token, who reaches loopback may call. So may pages in a browser of this machine: under a name that was
/// rebound to loopback, or with simple requests whose answers they cannot read. Browsers tell of both.
fn is_no_web_page(request: &Request) -> Result<(), AdminError> {
    if request.headers().contains_key(header::ORIGIN) {
        return Err(AdminError::forbidden(
            "a web page may not call the admin plane: it has no token (--admin-token-file)",
        ));
    }
    let of_headers =
        request.headers().get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let of_target = request.uri().authority().map(|authority| authority.as_str());
    match of_headers.chain(of_target).find(|host| !is_loopback(host)) {
        None => Ok(()),
        Some(host) => Err(AdminError::forbidden(format!(
            "without a token (--admin-token-file) the admin plane is called as localhost or 127.0.0.1, not as {host:?}"
        ))),
    }
}

/// Whether a `Host` header, with or without a port, names this machine whatever name servers say.
fn is_loopback(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    match address.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_names_that_no_name_server_decides_are_loopback() {
        for host in ["localhost", "LocalHost:7071", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:7071"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            ":80",
            "localhost.evil.example",
            "evil.example:7071",
            "10.0.0.1",
            "127.0.0.1.nip.io",
            "[::2]:1",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    proptest! {
        #[test]
        fn no_host_panics(host in ".*") {
            is_loopback(&host);
        }
    }
}
