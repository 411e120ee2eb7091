//! An HTTP proxy between this machine and a server, which passes connections on (`CONNECT`, RFC 9110 §9.3.6).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::uri::Authority;
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::ServiceExt;

use super::Address;
use super::send_error::root_cause;

/// An HTTP proxy, and the user name and password that it requires.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpProxy {
    /// Scheme and authority.
    uri: Uri,
    authorization: Option<HeaderValue>,
}

/// A text that does not name an HTTP proxy. The error does not repeat the text, which may have a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHttpProxy {
    /// The text is no URL.
    #[error("the text is no URL of an HTTP proxy; write it like http://proxy.example:3128")]
    Url,
    /// The proxy speaks another protocol, such as SOCKS or TLS.
    #[error("the URL of an HTTP proxy begins with http://, like http://proxy.example:3128")]
    Scheme,
}

impl HttpProxy {
    /// Returns the HTTP proxy that the environment names for a server: `https_proxy`, `http_proxy`, `all_proxy` and
    /// `no_proxy`, also in upper case. `None` for a server on loopback.
    ///
    /// Questions and exports of rolltap use it. Calls of agents use the HTTP proxy of [`PoolSettings`] alone.
    ///
    /// [`PoolSettings`]: super::PoolSettings
    pub fn of_environment(server: &Address) -> Option<Self> {
        Self::chosen_by(&Matcher::from_env(), server)
    }

    fn chosen_by(matcher: &Matcher, server: &Address) -> Option<Self> {
        if is_loopback(server.authority()) {
            return None;
        }
        let chosen = matcher.intercept(&server.to_string().parse().ok()?)?;
        let used = Self::of(&chosen);
        used.inspect_err(|error| {
            tracing::warn!(%server, "the HTTP proxy of the environment is not used: {error}");
        })
        .ok()
    }

    fn of(chosen: &Intercept) -> Result<Self, InvalidHttpProxy> {
        match chosen.uri().scheme_str() {
            Some("http") => {
                Ok(Self { uri: chosen.uri().clone(), authorization: chosen.basic_auth().cloned() })
            }
            _ => Err(InvalidHttpProxy::Scheme),
        }
    }

    /// Connects to a server through the proxy. The error names the proxy and the reason.
    pub(super) async fn connect(
        &self,
        connector: HttpConnector,
        server: Uri,
    ) -> Result<TokioIo<TcpStream>, String> {
        let mut tunnel = Tunnel::new(self.uri.clone(), connector);
        if let Some(authorization) = &self.authorization {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        // The library's connector knows the port of https alone.
        tunnel.oneshot(with_port(server)).await.map_err(|error| {
            let advice = match error.to_string() {
                text if text.ends_with("authorization required") => {
                    ": its URL needs a user name and a password, like http://USER:PASSWORD@HOST:PORT"
                }
                text if text.ends_with("unsuccessful") => ": it may forbid CONNECT to this host or port",
                _ => "",
            };
            format!("the HTTP proxy {self} does not connect: {}{advice}", root_cause(&error))
        })
    }
}

fn is_loopback(server: &Authority) -> bool {
    // An authority has an IPv6 address in brackets.
    let host = server.host().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Adds the port of the scheme to a URL without a port.
fn with_port(server: Uri) -> Uri {
    let Some((None, host)) = server.host().map(|host| (server.port(), host)) else { return server };
    let port = if server.scheme_str() == Some("https") { 443 } else { 80 };
    let scheme = server.scheme_str().unwrap_or("http");
    let built = Uri::builder().scheme(scheme).authority(format!("{host}:{port}")).path_and_query("/").build();
    built.unwrap_or(server)
}

impl FromStr for HttpProxy {
    type Err = InvalidHttpProxy;

    fn from_str(text: &str) -> Result<Self, InvalidHttpProxy> {
        let matcher = Matcher::builder().all(text.trim().to_owned()).build();
        let chosen = matcher.intercept(&Uri::from_static("http://server.example"));
        Self::of(&chosen.ok_or(InvalidHttpProxy::Url)?)
    }
}

impl fmt::Display for HttpProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.uri.authority().map_or("", Authority::as_str))
    }
}

/// A debug text could contain the password.
impl fmt::Debug for HttpProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpProxy({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_names_a_proxy_and_hides_its_password() {
        let proxy: HttpProxy = "http://user:secret@proxy.example:3128/".parse().unwrap();
        assert_eq!(proxy.to_string(), "http://proxy.example:3128");
        assert_eq!(proxy.authorization.as_ref().unwrap(), "Basic dXNlcjpzZWNyZXQ=");
        assert!(!format!("{proxy:?}").contains("secret"));
        assert_eq!(
            "proxy.example:3128".parse(),
            Ok::<HttpProxy, _>(HttpProxy { authorization: None, ..proxy })
        );
        for (text, error) in [
            ("", InvalidHttpProxy::Url),
            ("ftp://proxy.example", InvalidHttpProxy::Url),
            ("https://user:secret@proxy.example", InvalidHttpProxy::Scheme),
            ("socks5://proxy.example", InvalidHttpProxy::Scheme),
        ] {
            assert_eq!(text.parse::<HttpProxy>(), Err(error), "{text}");
        }
    }

    #[test]
    fn the_environment_chooses_by_scheme_and_host_and_never_for_loopback() {
        let matcher = Matcher::builder()
            .http("http://plain.example:1")
            .https("http://tls.example:2")
            .no("direct.example, 10.0.0.0/8")
            .build();
        let chosen = |server: &str| {
            HttpProxy::chosen_by(&matcher, &server.parse().unwrap()).map(|proxy| proxy.to_string())
        };
        assert_eq!(chosen("http://collector.example:4318").unwrap(), "http://plain.example:1");
        assert_eq!(chosen("https://collector.example").unwrap(), "http://tls.example:2");
        for direct in [
            "http://direct.example",
            "https://10.1.2.3",
            "http://127.0.0.1:4318",
            "http://[::1]:4318",
            "http://localhost",
        ] {
            assert_eq!(chosen(direct), None, "{direct}");
        }
    }

    #[test]
    fn a_server_without_a_port_has_the_port_of_its_scheme() {
        for (server, with) in [
            ("http://h/", "http://h:80/"),
            ("https://[::1]/", "https://[::1]:443/"),
            ("http://h:9/", "http://h:9/"),
        ] {
            assert_eq!(with_port(server.parse().unwrap()).to_string(), with);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            let _ = text.parse::<HttpProxy>();
        }
    }
}
