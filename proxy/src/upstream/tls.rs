//! TLS to upstreams with `https` addresses: the authorities that the proxy trusts, and its own certificate.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::common::tls::{CertificateFiles, TlsError, add_authorities};

/// The files of TLS to upstreams, or to another proxy's admin plane, in PEM format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Certificates of authorities that are trusted in addition to those of the system.
    pub authorities: Vec<PathBuf>,
    /// The certificate with which the proxy identifies itself. `None` suffices for most servers.
    pub identity: Option<CertificateFiles>,
}

/// TLS with these files, for all upstreams.
#[derive(Clone)]
pub(super) struct Connector(pub(super) TlsConnector);

/// A debug text could contain the key.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl UpstreamTls {
    pub(super) fn connector(&self) -> Result<Connector, TlsError> {
        Ok(Connector(Arc::new(self.client_config()?).into()))
    }

    /// Reads the files, for a client of HTTP/1.1.
    ///
    /// # Errors
    /// A file cannot be used, or no authority is known.
    pub fn client_config(&self) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots()?);
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.read()?;
                config.with_client_auth_cert(chain, key).map_err(|source| identity.unusable(source))?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        // Systems have old certificates that rustls does not accept. No server that is reachable needs them.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        self.authorities.iter().try_for_each(|path| add_authorities(&mut roots, path))?;
        if roots.is_empty() { Err(TlsError::NoAuthority) } else { Ok(roots) }
    }
}
