//! The HTTP client of calls to servers of the user's own: rolltap's proxy and vLLM.

use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Url};
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

/// Returns a client for `url`. A client with `https` trusts the authorities of the system, or those of `SSL_CERT_FILE`.
///
/// The client bypasses the HTTP proxies of the environment, because a call through one could miss rolltap's proxy. It
/// follows no redirects, because none of these servers redirects.
///
/// # Errors
/// A library cannot be used.
pub fn client_for(url: &Url, timeouts: ClientTimeouts) -> Result<Client, ClientError> {
    let mut roots = RootCertStore::empty();
    // To read the certificates of the system takes milliseconds, which HTTP without TLS does not need.
    if url.scheme() == "https" {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let client = Client::builder()
        .tls_backend_preconfigured(config.with_root_certificates(roots).with_no_client_auth())
        .no_proxy()
        .redirect(Policy::none())
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.read);
    Ok(client.build()?)
}
