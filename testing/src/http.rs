//! HTTP clients of tests.

use std::sync::Arc;

use reqwest::{Client, ClientBuilder, Response};
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

/// Returns a client that trusts no authority, for servers without TLS.
pub fn http_client() -> Client {
    client_builder().build().unwrap()
}

/// Returns the builder of a client that trusts no authority, for servers without TLS.
pub fn client_builder() -> ClientBuilder {
    with_tls(tls(RootCertStore::empty()).with_no_client_auth())
}

/// Returns a client that trusts one authority, and identifies itself by a certificate with its key.
pub fn client_trusting(
    authority: CertificateDer<'static>,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> Client {
    let config = trusting(authority);
    let config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
    };
    with_tls(config).build().unwrap()
}

/// Returns the TLS of a client that trusts one authority.
pub fn tls_trusting(authority: CertificateDer<'static>) -> ClientConfig {
    trusting(authority).with_no_client_auth()
}

/// Sends a GET to a server without TLS.
pub async fn get(url: impl reqwest::IntoUrl) -> reqwest::Result<Response> {
    http_client().get(url).send().await
}

fn trusting(authority: CertificateDer<'static>) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(authority).unwrap();
    tls(roots)
}

fn tls(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots)
}

fn with_tls(config: ClientConfig) -> ClientBuilder {
    Client::builder().no_proxy().tls_backend_preconfigured(config)
}
