//! A private authority, and the certificate of a gateway.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

pub(crate) struct Identity {
    authority: CertifiedIssuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Identity {
    /// Creates an authority and its certificate for this name or address.
    pub(crate) fn of(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // OpenSSL takes a certificate for self-signed if its issuer has its own name.
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        Self { certificate: params.signed_by(&key, &authority).unwrap(), authority, key }
    }

    /// Writes the certificate and its key, separately as nginx and Caddy read them, and together as HAProxy does.
    pub(crate) fn write(&self, dir: &Path) {
        let (certificate, key) = (self.certificate.pem(), self.key.serialize_pem());
        fs::write(dir.join("both.pem"), format!("{certificate}{key}")).unwrap();
        fs::write(dir.join("certificate.pem"), certificate).unwrap();
        fs::write(dir.join("key.pem"), key).unwrap();
        fs::write(dir.join("authority.pem"), self.authority.pem()).unwrap();
    }

    /// Returns the TLS settings of a client that trusts this authority alone.
    pub(crate) fn trusted(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.authority.der().to_vec())).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    }
}
