//! The HTTP clients of calls to servers of the user's own: rolltap's proxy and vLLM.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};
use rustls::{ClientConfig, RootCertStore};

/// The time limits of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    /// The maximum time of a connection attempt.
    pub connect: Duration,
    /// The maximum time without a byte of an answer.
    pub read: Duration,
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The TLS library cannot be used.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The HTTP library cannot be used.
    #[error(transparent)]
    Http(#[from] reqwest::Error),
}

/// Returns a client of model calls to `url`. A client with `https` trusts the authorities of the system, or those of
/// `SSL_CERT_FILE`.
///
/// The client bypasses the HTTP proxies of the environment, because a call through one could miss rolltap's proxy. It
/// follows no redirects, because none of these servers redirects.
///
/// # Errors
/// A library cannot be used.
pub fn client_for(url: &Url, timeouts: ClientTimeouts) -> Result<Client, ClientError> {
    Ok(builder(url, timeouts)?.no_proxy().build()?)
}

/// Returns a client of other calls to `url`, such as those to an admin plane. It differs from [`client_for`] in one
/// point. It uses the HTTP proxies of the environment (`https_proxy`, `http_proxy`, `all_proxy`, `no_proxy`), except for
/// servers on loopback. `tls` replaces the authorities of [`client_for`].
///
/// # Errors
/// A library cannot be used.
pub fn side_client_for(
    url: &Url,
    timeouts: ClientTimeouts,
    tls: Option<ClientConfig>,
) -> Result<Client, ClientError> {
    let builder = match tls {
        Some(tls) => with_tls(tls, timeouts),
        None => builder(url, timeouts)?,
    };
    Ok(if is_loopback(url) { builder.no_proxy() } else { builder }.build()?)
}

fn is_loopback(url: &Url) -> bool {
    // The URL has an IPv6 address in brackets.
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn builder(url: &Url, timeouts: ClientTimeouts) -> Result<ClientBuilder, ClientError> {
    let mut roots = RootCertStore::empty();
    // To read the certificates of the system takes milliseconds, which HTTP without TLS does not need.
    if url.scheme() == "https" {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(with_tls(config.with_root_certificates(roots).with_no_client_auth(), timeouts))
}

fn with_tls(tls: ClientConfig, timeouts: ClientTimeouts) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_this_machine_is_on_loopback() {
        for (url, expected) in [
            ("http://127.0.0.1:7071", true),
            ("http://[::1]:7071", true),
            ("https://localhost", true),
            ("http://10.0.0.5:7071", false),
            ("https://proxy.example", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
