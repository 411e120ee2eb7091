//! TLS of a plane: its certificate is read again when the files change.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use rustls::server::WebPkiClientVerifier;
use rustls::{AlertDescription, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::files::{CertificateFiles, TlsError, add_authorities};
use crate::common::file_version::FileVersion;

/// The time between two examinations of the files. An examination is a `stat` of two or three files.
const EXAMINED_EVERY: Duration = Duration::from_secs(2);

/// The files of TLS on a plane, in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneTls {
    /// The certificate that clients see.
    pub own: CertificateFiles,
    /// Certificates of authorities. If they are given, each client needs a certificate of one of them (mutual TLS).
    pub client_authorities: Option<PathBuf>,
}

/// The TLS of a plane in service.
#[derive(Debug)]
pub(crate) struct ServedTls {
    files: PlaneTls,
    current: RwLock<Arc<ServerConfig>>,
    /// The plane, for log lines.
    plane: &'static str,
    failures: Counter,
}

/// The version of each file. `None` for a file that cannot be examined.
type Versions = Vec<Option<FileVersion>>;

impl PlaneTls {
    fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions()?;
        let config = match &self.client_authorities {
            None => config.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                add_authorities(&mut roots, path)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                config.with_client_cert_verifier(verifier.map_err(|error| TlsError::ClientAuthorities {
                    path: path.clone(),
                    reason: error.to_string(),
                })?)
            }
        };
        let (chain, key) = self.own.read()?;
        let config = config.with_single_cert(chain, key);
        let mut config = config.map_err(|source| self.own.unusable(source))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn versions(&self) -> Versions {
        let Self { own: CertificateFiles { certificate, key }, client_authorities } = self;
        [certificate, key].into_iter().chain(client_authorities).map(|path| FileVersion::of(path)).collect()
    }
}

impl ServedTls {
    /// Reads the files, and reads them again after each change until the last reference to the result drops.
    pub(crate) fn start(
        files: PlaneTls,
        plane: &'static str,
        failures: Counter,
    ) -> Result<Arc<Self>, TlsError> {
        // A change between these lines is a change after these versions.
        let versions = files.versions();
        let current = RwLock::new(files.config()?);
        let served = Arc::new(Self { files, current, plane, failures });
        tokio::spawn(reload(Arc::downgrade(&served), versions));
        Ok(served)
    }

    /// Returns what performs the next handshake.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)).into()
    }

    /// Reads the files if they have changed since `versions`. Files that cannot be used change nothing, for example a new
    /// certificate whose key is not yet written.
    fn reload(&self, versions: &mut Versions) {
        let now = self.files.versions();
        if now == *versions {
            return;
        }
        *versions = now;
        let (plane, certificate) = (self.plane, self.files.own.certificate.display());
        match self.files.config() {
            Ok(config) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
                tracing::info!(plane, %certificate, "new connections use the changed certificate");
            }
            Err(error) => tracing::warn!(
                plane,
                "the files of TLS have changed and cannot be used, so new connections use the earlier certificate: \
                 {error}"
            ),
        }
    }

    /// Counts a failed handshake. The first, second, fourth, … is logged, because clients decide how many fail.
    pub(super) fn handshake_failed(&self, error: &io::Error) {
        let count = self.failures.inc() + 1;
        if count.is_power_of_two() {
            let advice = advice(error).unwrap_or_default();
            tracing::warn!(
                plane = self.plane,
                count,
                "a TLS handshake with a client failed: {error}{advice}"
            );
        }
    }
}

/// Returns what to do about a failed handshake.
fn advice(error: &io::Error) -> Option<&'static str> {
    let tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    match tls {
        rustls::Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::BadCertificate) => Some(
            ": the client does not trust the authority of --tls-cert; in a container, SSL_CERT_FILE and \
             NODE_EXTRA_CA_CERTS name the certificates that most clients trust",
        ),
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            Some(": the certificate of --tls-cert has expired")
        }
        rustls::Error::NoCertificatesPresented => {
            Some(": the client has no certificate, and --admin-client-ca requires one")
        }
        _ => None,
    }
}

async fn reload(served: Weak<ServedTls>, mut versions: Versions) {
    let mut due = tokio::time::interval(EXAMINED_EVERY);
    loop {
        due.tick().await;
        let Some(served) = served.upgrade() else { return };
        // The files may be on a slow disk.
        let examined = tokio::task::spawn_blocking(move || {
            served.reload(&mut versions);
            versions
        });
        let Ok(examined) = examined.await else { return };
        versions = examined;
    }
}
