//! A server with the S3 protocol, for the tests of object storage.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use tempfile::{NamedTempFile, TempDir};

use crate::{TestCertificate, free_port, until};

/// A server with the S3 protocol on loopback, with the bucket [`S3Server::BUCKET`]. It has its objects in memory, and is killed
/// when this is dropped.
#[derive(Debug)]
pub struct S3Server {
    port: u16,
    /// `None` while the server is stopped.
    child: Option<Child>,
    dir: TempDir,
    /// The certificate and its key. `None` without TLS.
    certificate: Option<[NamedTempFile; 2]>,
}

impl S3Server {
    /// The name of the bucket that exists from the start.
    pub const BUCKET: &str = "captures";

    /// Starts a server, and waits until it has its bucket. Requires the variable `ROLLTAP_TESTBED_S3`.
    pub fn start() -> Self {
        let mut server = Self::stopped();
        server.restart();
        server
    }

    /// Starts a server with TLS, and waits until it accepts connections. It has no bucket yet.
    pub fn start_with_tls(certificate: &TestCertificate) -> Self {
        let mut server = Self::stopped();
        server.certificate = Some(certificate.files());
        server.restart();
        server
    }

    /// Chooses the port of a server that does not run yet.
    pub fn stopped() -> Self {
        Self { port: free_port(), child: None, dir: tempfile::tempdir().unwrap(), certificate: None }
    }

    /// The URL of the server.
    pub fn endpoint(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// The port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The environment variables with which a client reaches the server.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ACCESS_KEY_ID", "tests".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "tests-secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL", self.endpoint()),
        ]
    }

    /// Starts a server that does not run, on its port, with an empty bucket.
    pub fn restart(&mut self) {
        let program = std::env::var_os("ROLLTAP_TESTBED_S3");
        assert!(
            program.is_some(),
            "ROLLTAP_TESTBED_S3 is not set: run ./scripts/testbed, and source its env"
        );
        let log = self.dir.path().join("s3.log");
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(program.unwrap());
        command.args(["-H", "127.0.0.1", "-p", &self.port.to_string()]);
        if let Some([certificate, key]) = &self.certificate {
            command.arg("-c").arg(certificate.path()).arg("-k").arg(key.path());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        self.child = Some(command.spawn().unwrap());
        let (port, has_tls) = (self.port, self.certificate.is_some());
        let is_ready =
            || if has_tls { TcpStream::connect(("127.0.0.1", port)).is_ok() } else { has_bucket(port) };
        until(&format!("the S3 server is ready: {}", log.display()), is_ready);
    }

    /// Kills the server. Its objects are lost.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns the process id of the server, if it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates the bucket. The server checks no signatures.
fn has_bucket(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let request = format!(
        "PUT /{} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        S3Server::BUCKET
    );
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer)).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}
