//! A client with one connection. One task polls the connection and the answer, so that the load costs little.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

type Connection = Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>;

/// A connection that has at most one call at a time.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection,
    target: SocketAddr,
}

impl Client {
    pub(crate) async fn connect(target: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(target).await.map_err(|error| format!("connect: {error}"))?;
        stream.set_nodelay(true).map_err(|error| format!("connect: {error}"))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| format!("handshake: {error}"))?;
        Ok(Self { sender, connection: Box::pin(connection), target })
    }

    /// Makes a call and gives each part of the answer's body to `part`, which returns whether to read more of it. Fails
    /// if the answer is an error or breaks off. After a failure or an unread rest, the connection is useless.
    pub(crate) async fn call(
        &mut self,
        path: &str,
        body: Bytes,
        mut part: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), String> {
        let request = Request::post(path)
            .header(header::HOST, self.target.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| format!("request: {error}"))?;
        let sent = self.sender.send_request(request);
        let mut answer =
            drive(&mut self.connection, sent).await?.map_err(|error| format!("answer: {error}"))?;
        let status = answer.status();
        let mut error = Vec::new();
        while let Some(frame) = drive(&mut self.connection, answer.frame()).await? {
            let Ok(data) = frame.map_err(|error| format!("body: {error}"))?.into_data() else { continue };
            if !status.is_success() {
                error.extend_from_slice(&data);
            } else if !part(&data) {
                return Ok(());
            }
        }
        if status.is_success() {
            Ok(())
        } else {
            Err(format!("{status}: {}", String::from_utf8_lossy(&error)))
        }
    }
}

/// Polls the connection until the future is ready. Fails if the connection ends before that.
async fn drive<T>(connection: &mut Connection, future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let ended = connection.as_mut().poll(cx);
        match (future.as_mut().poll(cx), ended) {
            (Poll::Ready(value), _) => Poll::Ready(Ok(value)),
            (Poll::Pending, Poll::Ready(ended)) => Poll::Ready(Err(format!("connection ended: {ended:?}"))),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
        }
    })
    .await
}
