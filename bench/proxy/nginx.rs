//! nginx as the reference: it passes calls on to the same upstream with TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rolltap_testing::TestAuthority;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::process::Process;

/// The files of a certificate of the upstream, in PEM format.
pub(crate) struct TlsFiles {
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl TlsFiles {
    /// Makes a certificate for loopback, and writes it to the directory.
    pub(crate) fn written_to(dir: &Path) -> Self {
        let authority = TestAuthority::default();
        let [certificate, key] = authority.certificate("127.0.0.1").pem();
        let written = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        Self {
            authority: written("authority.pem", &authority.pem()),
            certificate: written("certificate.pem", &certificate),
            key: written("key.pem", &key),
        }
    }
}

/// Returns the TLS of the upstream, with the certificate and the key of these files.
pub(crate) fn acceptor(certificate: &str, key: &str) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()).into()
}

/// Starts nginx with one worker, which is its only process, in front of the upstream.
///
/// Connections to the upstream stay open, and answers are not buffered. The version of TLS is that of the proxy, which
/// nginx 1.22 does not enable by default. nginx does not verify the certificate, which is its default, and would cost
/// time at new connections alone.
pub(crate) fn start(cores: &[usize], upstream: SocketAddr, dir: &Path) -> Process {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = dir.display();
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = folders.map(|name| format!("{name}_temp_path {at}/{name};")).concat();
    let config = format!(
        "daemon off; master_process off; worker_processes 1; pid {at}/pid; error_log {at}/error.log;
         events {{ worker_connections 4096; }}
         http {{ access_log off; {folders} client_max_body_size 0; client_body_buffer_size 4m;
           keepalive_requests 1000000;
           upstream model {{ server {upstream}; keepalive 512; keepalive_requests 1000000; }}
           server {{ listen {free};
             location / {{ proxy_pass https://model; proxy_http_version 1.1; proxy_set_header Connection \"\";
               proxy_ssl_protocols TLSv1.3; proxy_buffering off; proxy_read_timeout 1h; }} }} }}"
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, config).unwrap();
    let (file, log) = (file.to_str().unwrap(), dir.join("start.log"));
    Process::start_server(cores, &["nginx", "-c", file, "-e", log.to_str().unwrap()], free)
}
