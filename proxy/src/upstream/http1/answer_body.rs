//! The body of an answer, together with the connection on which it arrives.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::response;

use super::chunked::InvalidChunk;
use super::connection::Answered;
use super::connections::Connections;
use super::framing::Framing;
use super::response_head::ResponseHead;
use super::scratch;
use crate::common::tls::NetStream;

/// The largest buffer in bytes that is allocated for a declared length before any byte has arrived.
const TRUSTED_LENGTH: usize = 4 << 20;

/// Why the rest of an answer does not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("the connection closed before the end of the answer")]
    Closed,
    #[error(transparent)]
    Chunk(#[from] InvalidChunk),
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    #[error("nothing more came for {0:?}")]
    Silent(Duration),
}

/// The limits of an answer that is read whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    pub(crate) bytes: usize,
    /// The longest time without a byte.
    pub(crate) silence: Duration,
}

/// The body of an answer. If it is dropped before its end, the connection closes, and the server notices.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    framing: Framing,
    /// Bytes that arrived with the head and are not decoded yet.
    arrived: Bytes,
    /// `None` after the end, and after an error.
    stream: Option<NetStream>,
    keeps_alive: bool,
    /// Whether the reader needs no further data.
    is_read: bool,
    home: Arc<Connections>,
}

impl AnswerBody {
    /// Returns the head of an answer, and its body.
    pub(super) fn of(
        answered: Answered,
        stream: NetStream,
        home: Arc<Connections>,
    ) -> (response::Parts, Self) {
        let Answered { head: ResponseHead { parts, framing, keeps_alive }, rest } = answered;
        (parts, Self { framing, arrived: rest, stream: Some(stream), keeps_alive, is_read: false, home })
    }

    /// Returns the next data. `None` is the end of the answer.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, AnswerError>>> {
        if let Some(whole) = self.take_whole() {
            return Poll::Ready(Some(Ok(whole)));
        }
        let mut data = Vec::new();
        while data.is_empty() {
            match ready!(self.poll_into(cx, &mut data)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(None),
                Err(error) => {
                    self.stream = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(Some(Ok(data.into())))
    }

    /// Reads the answer to its end.
    pub(in crate::upstream) async fn whole(mut self, limits: ReadLimits) -> Result<Bytes, AnswerError> {
        let mut whole = Vec::new();
        if let Some(length) = self.left() {
            let length = usize::try_from(length).ok().filter(|&length| length <= limits.bytes);
            let length = length.ok_or(AnswerError::TooLong(limits.bytes))?;
            if let Some(whole) = self.take_whole() {
                return Ok(whole);
            }
            whole.reserve_exact(length.min(TRUSTED_LENGTH));
        }
        loop {
            let more = poll_fn(|cx| self.poll_into(cx, &mut whole));
            let more = tokio::time::timeout(limits.silence, more).await;
            if !more.map_err(|_| AnswerError::Silent(limits.silence))?? {
                return Ok(whole.into());
            }
            if whole.len() > limits.bytes {
                return Err(AnswerError::TooLong(limits.bytes));
            }
        }
    }

    /// Returns the number of bytes that are left, if the head of the answer has its length.
    pub(crate) fn left(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(left) => Some(left),
            Framing::Chunked(_) | Framing::UntilClose => None,
        }
    }

    /// Whether all data was returned.
    pub(crate) fn is_done(&self) -> bool {
        self.framing.is_done()
    }

    /// Returns a body that arrived together with its head. It needs no copy.
    fn take_whole(&mut self) -> Option<Bytes> {
        let is_whole = self.left() == Some(self.arrived.len() as u64) && !self.arrived.is_empty();
        is_whole.then(|| {
            self.framing = Framing::Length(0);
            std::mem::take(&mut self.arrived)
        })
    }

    /// Notes that the reader needs no further data. The connection waits for the end of the answer, and then for its next
    /// request.
    pub(in crate::upstream) fn needs_no_more(&mut self) {
        self.is_read = true;
    }

    /// Reads once, and appends the data. Returns false at the end of the answer.
    fn poll_into(&mut self, cx: &mut Context<'_>, data: &mut Vec<u8>) -> Poll<Result<bool, AnswerError>> {
        if self.framing.is_done() {
            self.release();
            return Poll::Ready(Ok(false));
        }
        if !self.arrived.is_empty() {
            let used = self.framing.decode(&self.arrived, data)?;
            drop(self.arrived.split_to(used));
            return Poll::Ready(Ok(true));
        }
        let Self { framing, stream, keeps_alive, .. } = self;
        let Some(stream) = stream else { return Poll::Ready(Ok(false)) };
        let read = scratch::poll_read(stream, cx, |bytes| {
            if bytes.is_empty() {
                return if matches!(framing, Framing::UntilClose) {
                    Ok(false)
                } else {
                    Err(AnswerError::Closed)
                };
            }
            let used = framing.decode(bytes, data)?;
            // Bytes after the answer belong to no request.
            *keeps_alive &= used == bytes.len();
            Ok(true)
        });
        Poll::Ready(ready!(read)?)
    }

    /// Hands the connection back for its next request, if the answer is complete or was read to its last useful byte.
    fn release(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let framing = std::mem::replace(&mut self.framing, Framing::Length(0));
        let has_end = framing.is_done() || self.is_read && matches!(framing, Framing::Chunked(_));
        if self.keeps_alive && has_end && self.arrived.is_empty() {
            self.home.put(stream, framing);
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.release();
    }
}
