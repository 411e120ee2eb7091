//! Sends a request on a connection, and reads the head of its answer.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWrite;

use super::handshake::explained;
use super::request::Request;
use super::response_head::{InvalidHead, ResponseHead};
use super::scratch;
use crate::common::tls::NetStream;
use crate::upstream::send_error::SendFailure;

/// The head of an answer, and the bytes that arrived with it.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) head: ResponseHead,
    /// The beginning of the body.
    pub(super) rest: Bytes,
}

/// A request on its way, and the answer to it as far as it has arrived.
struct Exchange<'a> {
    stream: &'a mut NetStream,
    request: &'a Request,
    written: usize,
    /// Whether TLS has sent everything that was written.
    is_flushed: bool,
    /// Why the rest of the request cannot be written.
    unwritten: Option<io::Error>,
    received: Bytes,
}

/// Sends a request, and returns the head of the answer. A server may answer before it has read the whole request.
pub(super) async fn exchange(stream: &mut NetStream, request: &Request) -> Result<Answered, SendFailure> {
    let mut exchange =
        Exchange { stream, request, written: 0, is_flushed: false, unwritten: None, received: Bytes::new() };
    poll_fn(|cx| exchange.poll(cx)).await
}

impl Exchange<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, SendFailure>> {
        if let Poll::Ready(Err(error)) = self.poll_write(cx) {
            // The server may have answered before it closed the connection, so the answer is still read.
            self.unwritten = Some(error);
        }
        loop {
            let Self { stream, received, .. } = self;
            let read = ready!(scratch::poll_read(stream, cx, |bytes| {
                *received = appended(received, bytes);
                !bytes.is_empty()
            }));
            match read {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Err(self.closed())),
                Err(error) => return Poll::Ready(Err(SendFailure::Closed(explained(&error)))),
            }
            let parsed = ResponseHead::parse(&self.received).map_err(|error| self.no_http(&error))?;
            if let Some((mut head, length)) = parsed {
                // The rest of a request that was answered early is not sent, so no other request can follow it.
                head.keeps_alive &= self.is_flushed;
                return Poll::Ready(Ok(Answered { head, rest: self.received.slice(length..) }));
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unwritten.is_none() && !self.is_written() {
            let parts = self.request.after(self.written).map(IoSlice::new);
            match ready!(Pin::new(&mut *self.stream).poll_write_vectored(cx, &parts))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        if self.unwritten.is_none() && !self.is_flushed {
            ready!(Pin::new(&mut *self.stream).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn is_written(&self) -> bool {
        self.request.after(self.written).iter().all(|part| part.is_empty())
    }

    fn no_http(&self, error: &InvalidHead) -> SendFailure {
        // A TLS server answers plain HTTP with an alert record (RFC 8446 §5.1).
        let is_tls = self.stream.is_plain() && self.received.starts_with(&[0x15, 0x03]);
        SendFailure::Broken(match is_tls {
            true => "it speaks TLS on this port, so its address begins with https://".to_owned(),
            false => error.to_string(),
        })
    }

    fn closed(&mut self) -> SendFailure {
        let reason = match self.unwritten.take() {
            Some(error) => explained(&error),
            None if self.received.is_empty() => "nothing came".to_owned(),
            None => "only a part of the answer's head came".to_owned(),
        };
        SendFailure::Closed(reason)
    }
}

/// Returns both byte strings, one after the other. Mostly the whole head arrives at once.
fn appended(received: &Bytes, bytes: &[u8]) -> Bytes {
    if received.is_empty() {
        return Bytes::copy_from_slice(bytes);
    }
    let mut both = BytesMut::with_capacity(received.len() + bytes.len());
    both.extend_from_slice(received);
    both.extend_from_slice(bytes);
    both.freeze()
}
