//! Connects to the Docker engine, and makes the one request that bollard cannot make.

use std::path::PathBuf;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::environment::EnvironmentError;

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// The limit for the first answer of the engine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit in seconds for one request. The engine may be busy with many containers.
const REQUEST_SECONDS: u64 = 120;

/// The limit for a restart of the engine.
const BACK_TIMEOUT: Duration = Duration::from_secs(90);
const BACK_PAUSE: Duration = Duration::from_millis(250);

/// Whether the error means that no engine answered, so that the request had no effect.
pub(super) fn is_away(error: &bollard::errors::Error) -> bool {
    use bollard::errors::Error;
    matches!(error, Error::HyperLegacyError { .. } | Error::SocketNotFoundError(_) | Error::IOError { .. })
}

/// A reachable engine, with an API version that it supports.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) api: Docker,
    endpoint: Endpoint,
}

#[derive(Clone, Debug)]
enum Endpoint {
    Unix(PathBuf),
    /// The address, `host:port`.
    Tcp(String),
}

impl Endpoint {
    fn parse(docker_host: &str) -> Result<Self, EnvironmentError> {
        if let Some(path) = docker_host.strip_prefix("unix://").filter(|path| path.starts_with('/')) {
            return Ok(Self::Unix(path.into()));
        }
        let tcp = docker_host.strip_prefix("tcp://").or_else(|| docker_host.strip_prefix("http://"));
        match tcp.map(|address| address.trim_end_matches('/')) {
            Some(address) if address.contains(':') && !address.contains('/') => {
                Ok(Self::Tcp(address.to_owned()))
            }
            _ => Err(EnvironmentError::DockerHost(docker_host.to_owned())),
        }
    }

    fn client(&self) -> Result<Docker, bollard::errors::Error> {
        match self {
            Self::Unix(path) => {
                Docker::connect_with_unix(&path.to_string_lossy(), REQUEST_SECONDS, API_DEFAULT_VERSION)
            }
            Self::Tcp(address) => Docker::connect_with_http(address, REQUEST_SECONDS, API_DEFAULT_VERSION),
        }
    }
}

impl Engine {
    /// Returns the value of `DOCKER_HOST` for Docker's command line.
    pub(super) fn docker_host(&self) -> String {
        match &self.endpoint {
            Endpoint::Unix(path) => format!("unix://{}", path.display()),
            Endpoint::Tcp(address) => format!("tcp://{address}"),
        }
    }

    /// Waits until the engine answers again, such as after a restart, and at most `BACK_TIMEOUT`.
    pub(super) async fn wait_until_back(&self) {
        tracing::warn!("the Docker engine does not answer; waiting for it to come back");
        let back = async {
            while self.api.ping().await.is_err() {
                tokio::time::sleep(BACK_PAUSE).await;
            }
        };
        if tokio::time::timeout(BACK_TIMEOUT, back).await.is_err() {
            tracing::warn!("the Docker engine has not come back within {BACK_TIMEOUT:?}");
        }
    }

    /// Whether the engine runs on this machine. A Unix socket counts as local, a TCP address does not.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.endpoint, Endpoint::Unix(_))
    }

    /// Connects to the engine in `DOCKER_HOST`, or to the one at the default socket.
    pub(super) async fn connect() -> Result<Self, EnvironmentError> {
        let (endpoint, origin) = match std::env::var("DOCKER_HOST") {
            Ok(host) if !host.is_empty() => (host, "from DOCKER_HOST"),
            _ => (format!("unix://{DEFAULT_SOCKET}"), "the default; DOCKER_HOST is not set"),
        };
        Self::connect_to(endpoint, origin).await
    }

    async fn connect_to(endpoint: String, origin: &'static str) -> Result<Self, EnvironmentError> {
        let place = Endpoint::parse(&endpoint)?;
        let negotiation = async { place.client()?.negotiate_version().await };
        let answer = tokio::time::timeout(CONNECT_TIMEOUT, negotiation).await;
        match answer.unwrap_or(Err(bollard::errors::Error::RequestTimeoutError)) {
            Ok(api) => Ok(Self { api, endpoint: place }),
            Err(source) => Err(EnvironmentError::NoEngine { endpoint, origin, source }),
        }
    }

    /// Starts an exec that has a terminal, and returns its byte stream.
    ///
    /// bollard looks for frame headers in a terminal's output, which has none. A chunk that begins with the byte 0, 1
    /// or 2 makes it wait for up to 4 GiB. So this function makes the request itself.
    pub(super) async fn start_terminal(
        &self,
        exec: &str,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static, EnvironmentError> {
        let version = self.api.client_version();
        let request = Request::post(format!("/v{version}/exec/{exec}/start"))
            .header(HOST, "docker")
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "tcp")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(r#"{"Detach":false,"Tty":true}"#))
            .map_err(terminal)?;
        match &self.endpoint {
            Endpoint::Unix(path) => {
                take_over(UnixStream::connect(path).await.map_err(terminal)?, request).await
            }
            Endpoint::Tcp(address) => {
                take_over(TcpStream::connect(address).await.map_err(terminal)?, request).await
            }
        }
    }
}

fn terminal(error: impl std::fmt::Display) -> EnvironmentError {
    EnvironmentError::Terminal(error.to_string())
}

async fn take_over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<TokioIo<hyper::upgrade::Upgraded>, EnvironmentError> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(terminal)?;
    // The task ends with the upgraded connection, or with a rejected request.
    tokio::spawn(connection.with_upgrades());
    let response = sender.send_request(request).await.map_err(terminal)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = response.status();
        let body = response.into_body().collect().await.map_err(terminal)?.to_bytes();
        return Err(terminal(format_args!("{status}: {}", String::from_utf8_lossy(&body).trim())));
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await.map_err(terminal)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_host_is_a_socket_or_an_address() {
        for fine in ["unix:///var/run/docker.sock", "tcp://127.0.0.1:2375", "http://engine:2375/"] {
            assert!(Endpoint::parse(fine).is_ok(), "{fine}");
        }
        for wrong in
            ["ssh://host", "/var/run/docker.sock", "tcp://host", "unix://relative", "tcp://host:1/path"]
        {
            let error = Endpoint::parse(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("DOCKER_HOST = {wrong:?}: expected unix:///")), "{error}");
        }
    }

    #[tokio::test]
    async fn no_engine_is_told_with_what_was_tried_and_what_helps() {
        let empty = tempfile::tempdir().unwrap();
        let endpoint = format!("unix://{}/docker.sock", empty.path().display());
        let error = Engine::connect_to(endpoint.clone(), "from DOCKER_HOST").await.unwrap_err().to_string();
        let expected = format!("no Docker engine answers at {endpoint} (from DOCKER_HOST): start one");
        assert!(error.starts_with(&expected) && error.contains("-e local"), "{error}");
    }
}
