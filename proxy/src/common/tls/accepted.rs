//! The connection of a client. The handshake is a part of the first read, so a slow client delays no other.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::Accept;

use super::{NetStream, ServedTls};

/// The first byte of a TLS connection: the content type of a handshake (RFC 8446 §5.1).
const HANDSHAKE: u8 = 0x16;

/// The answer to a client that speaks HTTP without TLS.
const NEEDS_TLS: &str = "{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"this port expects TLS, and the \
                         request came without it: use https:// instead of http://\"}}";

/// A connection of a client.
pub(crate) struct AcceptedStream {
    state: State,
    /// `None` for a plane without TLS.
    tls: Option<Arc<ServedTls>>,
}

enum State {
    Ready(NetStream),
    /// The client has sent nothing.
    New(TcpStream),
    Handshake(Box<Accept<TcpStream>>),
    Failed,
}

impl AcceptedStream {
    pub(crate) fn new(stream: TcpStream, tls: Option<Arc<ServedTls>>) -> Self {
        let state = if tls.is_some() { State::New(stream) } else { State::Ready(NetStream::Plain(stream)) };
        Self { state, tls }
    }

    /// Performs the handshake.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut NetStream>> {
        while !matches!(self.state, State::Ready(_)) {
            let next = ready!(self.poll_step(cx));
            self.state = match next {
                Ok(state) => state,
                Err(error) => {
                    self.state = State::Failed;
                    self.tls.iter().for_each(|tls| tls.handshake_failed(&error));
                    return Poll::Ready(Err(error));
                }
            };
        }
        match &mut self.state {
            State::Ready(stream) => Poll::Ready(Ok(stream)),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Returns the next state.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<State>> {
        match (&mut self.state, &self.tls) {
            (State::New(stream), Some(tls)) => {
                let mut first = [0];
                let mut first = ReadBuf::new(&mut first);
                ready!(stream.poll_peek(cx, &mut first))?;
                let speaks_tls = match first.filled() {
                    [] => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    [byte, ..] => *byte == HANDSHAKE,
                };
                let State::New(stream) = std::mem::replace(&mut self.state, State::Failed) else {
                    return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
                };
                Poll::Ready(if speaks_tls {
                    Ok(State::Handshake(Box::new(tls.acceptor().accept(stream))))
                } else {
                    Err(refuse(&stream))
                })
            }
            (State::Handshake(handshake), _) => {
                let stream = ready!(Pin::new(handshake).poll(cx))?;
                Poll::Ready(Ok(State::Ready(NetStream::tls(stream))))
            }
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

/// Answers a client that speaks HTTP without TLS. Returns the error for the log.
fn refuse(stream: &TcpStream) -> io::Error {
    // Unread bytes would let the system discard the answer.
    let _ = stream.try_read(&mut [0; 16 << 10]);
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n\
         {NEEDS_TLS}",
        NEEDS_TLS.len()
    );
    let _ = stream.try_write(answer.as_bytes());
    io::Error::new(io::ErrorKind::InvalidData, "the client did not speak TLS, which this port expects")
}

/// The state suffices: a stream of TLS has keys.
impl fmt::Debug for AcceptedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Ready(_) => "ready",
            State::New(_) => "new",
            State::Handshake(_) => "handshake",
            State::Failed => "failed",
        };
        f.debug_struct("AcceptedStream").field("state", &state).finish_non_exhaustive()
    }
}

impl AsyncRead for AcceptedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = ready!(self.get_mut().poll_ready(cx))?;
        Pin::new(stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for AcceptedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = ready!(self.get_mut().poll_ready(cx))?;
        Pin::new(stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = ready!(self.get_mut().poll_ready(cx))?;
        Pin::new(stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Ready(stream) => Pin::new(stream).poll_flush(cx),
            // Nothing has been written before the end of the handshake.
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Ready(stream) => Pin::new(stream).poll_shutdown(cx),
            // A connection without a handshake ends when it is dropped.
            _ => Poll::Ready(Ok(())),
        }
    }
}
