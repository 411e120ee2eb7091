//! Reads certificates and keys in PEM format (RFC 7468).

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The files of a certificate and its private key, in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The file with the certificate, and with the certificates between it and its authority.
    pub certificate: PathBuf,
    /// The file with the private key.
    pub key: PathBuf,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{} cannot be read as PEM: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: pem::Error,
    },
    /// A file has no certificate.
    #[error("{} has no certificate; a certificate begins with -----BEGIN CERTIFICATE-----", .0.display())]
    NoCertificate(PathBuf),
    /// A certificate cannot be an authority.
    #[error("a certificate of {} cannot be used as an authority: {source}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// A certificate and its key cannot be used together.
    #[error("the certificate {} cannot be used with the key {}: {source}", certificate.display(), key.display())]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The authorities of clients cannot be used.
    #[error("the certificates of {} cannot be used as authorities of clients: {reason}", path.display())]
    ClientAuthorities {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The host of an address cannot be in a certificate.
    #[error("{0} has a host that is neither a name nor an IP address")]
    InvalidHost(String),
    /// No authority is known.
    #[error(
        "this system has no certificates of authorities: install its package ca-certificates, or name a file with \
         --upstream-ca, or with --proxy-ca for the admin plane of --proxy"
    )]
    NoAuthority,
    /// The TLS library cannot be used.
    #[error(transparent)]
    Library(#[from] rustls::Error),
}

impl CertificateFiles {
    /// Reads the certificate, with those between it and its authority, and the key.
    pub(crate) fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| TlsError::Unreadable { path: self.key.clone(), source })?;
        Ok((chain, key))
    }

    /// Returns the error of a certificate and a key that cannot be used together.
    pub(crate) fn unusable(&self, source: rustls::Error) -> TlsError {
        TlsError::Unusable { certificate: self.certificate.clone(), key: self.key.clone(), source }
    }
}

/// Adds all certificates of a file as authorities.
pub(crate) fn add_authorities(roots: &mut RootCertStore, path: &Path) -> Result<(), TlsError> {
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|source| TlsError::Authority { path: path.to_owned(), source })?;
    }
    Ok(())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
    let certificates = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(unreadable)?;
    if certificates.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(certificates) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_authority(text: &[u8]) -> Result<(), TlsError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        add_authorities(&mut RootCertStore::empty(), file.path())
    }

    #[test]
    fn a_file_that_is_no_certificate_is_named_with_the_reason() {
        let missing = add_authorities(&mut RootCertStore::empty(), Path::new("/nowhere.pem"));
        let error = missing.unwrap_err().to_string();
        assert!(error.contains("/nowhere.pem cannot be read"), "{error}");
        for (text, part) in [
            ("", "has no certificate"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "cannot be used as an authority",
            ),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "cannot be read as PEM"),
        ] {
            let error = with_authority(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(text: Vec<u8>, in_pem: bool) {
            let pem = |body: &[u8]| [b"-----BEGIN CERTIFICATE-----\n", body, b"\n-----END CERTIFICATE-----\n"].concat();
            let text = if in_pem { pem(&text) } else { text };
            prop_assert!(with_authority(&text).is_err());
        }
    }
}
