//! Decides who may call a server that is meant for programs.
//!
//! With a token, every client that sends the token may call. Without a token, programs of this machine may call.

use std::net::IpAddr;

use http::{Request, header};
use sha2::{Digest, Sha256};

/// The rule for the clients of a server.
#[derive(Debug)]
pub struct Admission {
    /// The name of the server in its error messages.
    pub server: &'static str,
    /// The command-line option that names the file with the token.
    pub flag: &'static str,
    /// The token that clients must send. `None` if only this machine can call.
    pub token: Option<String>,
}

/// The reason why a client is rejected, as a message for the client.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// The token is missing or wrong: 401.
    #[error("{0}")]
    Unauthorized(String),
    /// The client is a web page: 403.
    #[error("{0}")]
    Forbidden(String),
}

impl Admission {
    /// Checks whether the client of a request may call.
    ///
    /// # Errors
    /// The reason why the client may not call.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), NotAdmitted> {
        match &self.token {
            Some(token) => self.bears(request, token),
            None => self.is_no_web_page(request),
        }
    }

    fn bears<B>(&self, request: &Request<B>, token: &str) -> Result<(), NotAdmitted> {
        let given = request
            .headers()
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        // The hashes are compared instead of the texts, so that the time of the comparison reveals nothing about the
        // token.
        if given.is_some_and(|given| Sha256::digest(given) == Sha256::digest(token)) {
            return Ok(());
        }
        let Self { server, flag, .. } = self;
        Err(NotAdmitted::Unauthorized(format!(
            "{server} wants the token of {flag} as Authorization: Bearer TOKEN"
        )))
    }

    /// Rejects web pages. Without a token, every program that reaches loopback may call, and so could pages in a
    /// browser of this machine: under a name that was rebound to loopback, or with simple requests whose answers they
    /// cannot read. Browsers reveal the first in `Host`, the second in `Origin`.
    fn is_no_web_page<B>(&self, request: &Request<B>) -> Result<(), NotAdmitted> {
        let Self { server, flag, .. } = self;
        if request.headers().contains_key(header::ORIGIN) {
            return Err(NotAdmitted::Forbidden(format!(
                "a web page may not call {server}: it has no token ({flag})"
            )));
        }
        // HTTP permits a repeated header and an absolute target, so every host that the request names is checked.
        let of_headers =
            request.headers().get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
        let of_target = request.uri().authority().map(|authority| authority.as_str());
        match of_headers.chain(of_target).find(|host| !is_loopback(host)) {
            None => Ok(()),
            Some(host) => Err(NotAdmitted::Forbidden(format!(
                "without a token ({flag}) {server} is called as localhost or 127.0.0.1, not as {host:?}"
            ))),
        }
    }
}

/// Whether a `Host` header, with or without a port, names this machine independently of any name server.
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
