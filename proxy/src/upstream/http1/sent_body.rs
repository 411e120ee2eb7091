//! The body of a request in the coding in which it is sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body;

/// A body whose pieces are sent one after the other.
#[derive(Debug)]
pub(super) struct SentBody<B> {
    body: B,
    /// Whether the chunked transfer coding frames the pieces (RFC 9112 §7.1).
    is_chunked: bool,
    /// Whether the last piece was returned.
    is_done: bool,
}

impl<B: Body<Data = Bytes> + Unpin> SentBody<B> {
    pub(super) fn new(body: B, is_chunked: bool) -> Self {
        Self { body, is_chunked, is_done: false }
    }

    /// Returns the next bytes to send. `None` is the end. Trailers are dropped.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, B::Error>>> {
        // The end of a body of known length needs no further poll.
        while !self.is_done && (self.is_chunked || !self.body.is_end_stream()) {
            let data = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => break,
            };
            // An empty chunk would end the body.
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(if self.is_chunked { chunk(&data) } else { data })));
            }
        }
        let is_last_chunk = self.is_chunked && !self.is_done;
        self.is_done = true;
        Poll::Ready(is_last_chunk.then(|| Ok(Bytes::from_static(b"0\r\n\r\n"))))
    }
}

fn chunk(data: &[u8]) -> Bytes {
    let mut chunk = BytesMut::with_capacity(data.len() + 20);
    chunk.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
    chunk.extend_from_slice(data);
    chunk.extend_from_slice(b"\r\n");
    chunk.freeze()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use proptest::prelude::*;

    use super::super::chunked::ChunkDecoder;
    use super::*;

    fn sent<B: Body<Data = Bytes, Error = Infallible> + Unpin>(body: B, is_chunked: bool) -> Vec<u8> {
        let mut body = SentBody::new(body, is_chunked);
        let mut sent = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(Ok(piece))) = body.poll_piece(&mut cx) {
            sent.extend_from_slice(&piece);
        }
        assert!(matches!(body.poll_piece(&mut cx), Poll::Ready(None)), "the end stays the end");
        sent
    }

    #[test]
    fn a_body_of_known_length_is_sent_as_it_is() {
        assert_eq!(sent(Full::new(Bytes::from_static(b"abc")), false), b"abc");
        assert_eq!(sent(Full::new(Bytes::new()), false), b"");
    }

    proptest! {
        #[test]
        fn chunks_decode_to_the_body(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)) {
            let frames = pieces.iter().map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))));
            let trailers = [Ok(Frame::trailers(http::HeaderMap::new()))];
            let sent = sent(StreamBody::new(stream::iter(frames.chain(trailers))), true);
            let (mut decoder, mut data) = (ChunkDecoder::default(), Vec::new());
            prop_assert_eq!(decoder.decode(&sent, &mut data), Ok(sent.len()));
            prop_assert!(decoder.is_done());
            prop_assert_eq!(data, pieces.concat());
        }
    }
}
