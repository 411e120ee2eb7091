//! An agent's HTTP client behind a gateway. Each request has its own connection, so that a test decides when it closes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rolltap_testing::{TestAuthority, tls_trusting};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;

#[derive(Clone)]
pub(crate) struct Client {
    gateway: SocketAddr,
    /// The name or address in the gateway's certificate.
    host: String,
    tls: Arc<ClientConfig>,
}

/// An answer whose body is read piece by piece. Dropping it closes its connection.
pub(crate) struct Answer {
    response: Response<Incoming>,
    _connection: AbortOnDropHandle<hyper::Result<()>>,
}

impl Client {
    pub(crate) fn new(gateway: SocketAddr, host: String, authority: &TestAuthority) -> Self {
        Self { gateway, host, tls: Arc::new(tls_trusting(authority.der())) }
    }

    /// Opens a connection to the gateway.
    pub(crate) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.gateway).await?;
        let name = ServerName::try_from(self.host.clone()).unwrap();
        TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await
    }

    /// Sends a request, and returns the head of its answer.
    pub(crate) async fn send<B>(&self, request: Request<B>) -> Answer
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stream = self.connect().await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        // Aborting the task closes the connection, also while `send_request` waits.
        let connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let response = sender.send_request(request).await.unwrap();
        Answer { response, _connection: connection }
    }

    /// Posts JSON to an address below the gateway's public URL.
    pub(crate) async fn post(&self, url: &str, body: &Value) -> Answer {
        self.send(self.request("POST", url).body(Full::new(Bytes::from(body.to_string()))).unwrap()).await
    }

    pub(crate) async fn get(&self, url: &str) -> Answer {
        self.send(self.request("GET", url).body(Full::new(Bytes::new())).unwrap()).await
    }

    /// Returns a request for an address of the gateway.
    pub(crate) fn request(&self, method: &str, url: &str) -> http::request::Builder {
        let host = format!("{}:{}", self.host, self.gateway.port());
        let path =
            url.strip_prefix(&format!("https://{host}")).unwrap_or_else(|| panic!("{url} is not at {host}"));
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
    }
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the next piece of the body as text. `None` at its end.
    pub(crate) async fn piece(&mut self) -> Option<String> {
        let frame = self.response.frame().await?.unwrap();
        Some(String::from_utf8_lossy(frame.data_ref()?).into_owned())
    }

    /// Reads the body until it contains this text.
    pub(crate) async fn until(&mut self, expected: &str) -> String {
        let mut text = String::new();
        while !text.contains(expected) {
            let piece = self.piece().await;
            text.push_str(&piece.unwrap_or_else(|| panic!("{expected:?} does not come: {text}")));
        }
        text
    }

    /// Returns the whole body.
    pub(crate) async fn text(mut self) -> String {
        let mut text = String::new();
        while let Some(piece) = self.piece().await {
            text.push_str(&piece);
        }
        text
    }
}
