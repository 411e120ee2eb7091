//! TLS to one server: its handshake, and why it fails.

use std::fmt;
use std::io;

use http::uri::Authority;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, InvalidMessage};
use tokio::net::TcpStream;

use crate::common::tls::NetStream;
use crate::upstream::tls::Connector;

/// TLS to one server.
#[derive(Clone)]
pub(in crate::upstream) struct ServerTls {
    connector: Connector,
    /// The name that the certificate of the server must have.
    name: ServerName<'static>,
}

impl ServerTls {
    /// Returns `None` if the host is neither a name nor an IP address.
    pub(in crate::upstream) fn of(connector: Connector, server: &Authority) -> Option<Self> {
        // An authority has an IPv6 address in brackets.
        let host = server.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { connector, name: host.try_into().ok()? })
    }

    /// Performs the handshake. The error names the cause and the remedy.
    pub(super) async fn handshake(&self, stream: TcpStream) -> Result<NetStream, String> {
        let connected = self.connector.0.connect(self.name.clone(), stream).await;
        connected
            .map(NetStream::tls)
            .map_err(|error| format!("the TLS handshake failed: {}", explained(&error)))
    }
}

/// The name suffices: the connector has a key.
impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns an error of a connection as text, with what to do about an error of TLS.
pub(super) fn explained(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let advice = match tls {
        Some(rustls::Error::InvalidCertificate(
            // Another authority of the same name made the signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => ": give the certificate of its authority to --upstream-ca",
        // rustls has no variant for this error of its library, which no certificate of --upstream-ca avoids.
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            ": the server identifies itself by the certificate of an authority; give it one without CA:TRUE, which \
             openssl req -x509 makes with -addext basicConstraints=critical,CA:FALSE"
        }
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            ": the server does not speak TLS on this port, so its address begins with http://"
        }
        Some(rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
        )) => ": it may require a client certificate, which --upstream-client-cert gives",
        _ => "",
    };
    format!("{error}{advice}")
}
