//! Sends a request on a connection, and reads the head of its answer.

use std::fmt::Display;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use tokio::io::AsyncWrite;

use super::framing::Framing;
use super::handshake::explained;
use super::request::WholeHead;
use super::response_head::{InvalidHead, ResponseHead};
use super::scratch;
use super::sent_body::SentBody;
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
struct Exchange<'a, B> {
    stream: &'a mut NetStream,
    head: &'a WholeHead,
    /// The number of bytes of the head that were written.
    head_written: usize,
    body: SentBody<B>,
    body_state: BodyState,
    /// The part of the body that is written next.
    piece: Bytes,
    received: Bytes,
}

/// How far the body of a request was sent.
#[derive(Debug)]
enum BodyState {
    /// The next piece is needed.
    Next,
    /// There is a piece to write.
    Piece,
    /// There are no more pieces.
    Ended,
    /// TLS has sent everything that was written, too.
    Flushed,
    /// The rest cannot be written, for this reason.
    Unwritten(io::Error),
}

/// Sends a request, and returns the head of the answer. A server may answer before it has read the whole request.
pub(super) async fn exchange<B>(
    stream: &mut NetStream,
    head: &WholeHead,
    body: B,
) -> Result<Answered, SendFailure>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let body = SentBody::new(body, head.is_chunked);
    let (piece, received) = (Bytes::new(), Bytes::new());
    let mut exchange =
        Exchange { stream, head, head_written: 0, body, body_state: BodyState::Next, piece, received };
    poll_fn(|cx| exchange.poll(cx)).await
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Exchange<'_, B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, SendFailure>> {
        if let Poll::Ready(Err(failure)) = self.poll_send(cx) {
            return Poll::Ready(Err(failure));
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
                head.keeps_alive &= matches!(self.body_state, BodyState::Flushed);
                if self.head.is_for_head {
                    head.framing = Framing::Length(0);
                }
                return Poll::Ready(Ok(Answered { head, rest: self.received.slice(length..) }));
            }
        }
    }

    /// Sends what can be sent at present. Fails if the body breaks off.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendFailure>> {
        loop {
            let done = match &self.body_state {
                BodyState::Next => {
                    // The head waits for the first piece, so that one write sends both.
                    let piece = ready!(self.body.poll_piece(cx)).transpose().map_err(|error| {
                        SendFailure::Broken(format!("the body of the request broke off: {error}"))
                    })?;
                    self.body_state = if piece.is_some() { BodyState::Piece } else { BodyState::Ended };
                    self.piece = piece.unwrap_or_default();
                    continue;
                }
                BodyState::Piece => ready!(self.poll_write(cx)).map(|()| BodyState::Next),
                BodyState::Ended => ready!(self.poll_write(cx)).map(|()| BodyState::Flushed),
                BodyState::Flushed | BodyState::Unwritten(_) => return Poll::Ready(Ok(())),
            };
            // The server may have answered before it closed the connection, so the answer is still read.
            self.body_state = done.unwrap_or_else(BodyState::Unwritten);
        }
    }

    /// Writes the rest of the head and of the piece.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, head, head_written, piece, .. } = self;
        loop {
            let rest = head.bytes.get(*head_written..).unwrap_or_default();
            if rest.is_empty() && piece.is_empty() {
                return Pin::new(&mut **stream).poll_flush(cx);
            }
            let parts = [IoSlice::new(rest), IoSlice::new(piece)];
            let written = ready!(Pin::new(&mut **stream).poll_write_vectored(cx, &parts))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = written.min(rest.len());
            *head_written += of_head;
            piece.advance(written - of_head);
        }
    }

    fn no_http(&self, error: &InvalidHead) -> SendFailure {
        // A TLS server answers plain HTTP with an alert record (RFC 8446 §5.1).
        let is_tls = self.stream.is_plain() && self.received.starts_with(&[0x15, 0x03]);
        SendFailure::Broken(match is_tls {
            true => "it speaks TLS on this port, so its address begins with https://".to_owned(),
            false => error.to_string(),
        })
    }

    fn closed(&self) -> SendFailure {
        let reason = match &self.body_state {
            BodyState::Unwritten(error) => explained(error),
            _ if self.received.is_empty() => "nothing came".to_owned(),
            _ => "only a part of the answer's head came".to_owned(),
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
