//! Certificates of tests, and the authorities that sign them.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::NamedTempFile;

/// An authority.
#[derive(Debug)]
pub struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

/// A certificate of an authority, with its key.
#[derive(Debug)]
pub struct TestCertificate {
    certificate: Certificate,
    key: KeyPair,
}

impl Default for TestAuthority {
    fn default() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // OpenSSL takes a certificate for self-signed if its issuer has its own name.
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }
}

impl TestAuthority {
    /// Returns a certificate for this name or address. It is valid from the year 2000 to the year 2100.
    pub fn certificate(&self, name: &str) -> TestCertificate {
        self.certificate_until(name, 2100)
    }

    /// Returns a certificate for this name or address that is valid from the year 2000 until a year.
    pub fn certificate_until(&self, name: &str, year: i32) -> TestCertificate {
        let (key, params) = (KeyPair::generate().unwrap(), params(name, year));
        TestCertificate { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }

    /// Returns the certificate of the authority.
    pub fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// Returns the certificate of the authority in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Writes the certificate of the authority to a file, in PEM.
    pub fn file(&self) -> NamedTempFile {
        file_of(&self.pem())
    }
}

impl TestCertificate {
    /// Returns a certificate that its own key signs. `openssl req -x509` makes it an authority by default.
    pub fn self_signed(name: &str, is_authority: bool) -> Self {
        let (key, mut params) = (KeyPair::generate().unwrap(), params(name, 2100));
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        Self { certificate: params.self_signed(&key).unwrap(), key }
    }

    /// Returns the certificate and its key.
    pub fn der(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        (self.certificate.der().clone(), key)
    }

    /// Returns the certificate and its key in PEM.
    pub fn pem(&self) -> [String; 2] {
        [self.certificate.pem(), self.key.serialize_pem()]
    }

    /// Writes the certificate and its key to files, in PEM.
    pub fn files(&self) -> [NamedTempFile; 2] {
        self.pem().map(|pem| file_of(&pem))
    }
}

/// Returns the facts of a certificate that is valid from the year 2000 until a year.
fn params(name: &str, until: i32) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    params
}

fn file_of(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}
