//! Reads the bodies of agents' requests, or discards them if a request is rejected before.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::agent_plane::body_budget::Reservation;
use crate::agent_plane::error::AgentError;
use crate::trial::CallRefusal;

/// The largest body in bytes: enough for long contexts with images. vLLM itself has no limit.
const LARGEST_REQUEST: u64 = 256 << 20;
/// The longest pause within a body. A client that pauses longer has vanished or is hostile.
const REQUEST_SILENCE: Duration = Duration::from_secs(60);
/// The longest time for a whole body. A slower connection is useless for calls, and the unfinished body holds memory.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(10);
/// The most bytes that are reserved for a body before they arrive. A declared size may be a lie.
const MOST_RESERVED: usize = 4 << 20;
/// The largest part of a rejected request's body that is read, in bytes. A client that sends more may find the
/// connection closed before it has the answer.
const DISCARDED: u64 = 32 << 20;
/// The longest time for which the body of a rejected request is read.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads a body of at most `largest` bytes, and grows its memory reservation with each piece.
///
/// Fails if the body is too large, too slow or incomplete. Such a request is not a call.
pub(crate) async fn read(
    body: &mut Incoming,
    largest: Option<u64>,
    room: &mut Reservation,
) -> Result<Bytes, AgentError> {
    let largest = largest.unwrap_or(LARGEST_REQUEST).min(LARGEST_REQUEST);
    let read = tokio::time::timeout(REQUEST_TIMEOUT, read_whole(body, largest, room)).await;
    read.map_err(|_| too_slow("the request body was not whole", REQUEST_TIMEOUT))?
}

async fn read_whole(body: &mut Incoming, largest: u64, room: &mut Reservation) -> Result<Bytes, AgentError> {
    // If the head contains a size that is too large, no byte of the body needs to be read.
    if body.size_hint().lower() > largest {
        return Err(CallRefusal::BodyTooLarge(largest).into());
    }
    let mut whole = GatheredBody::of_length(body.size_hint().lower());
    let limited = Limited::new(body, usize::try_from(largest).unwrap_or(usize::MAX));
    let mut limited = std::pin::pin!(limited);
    loop {
        let frame = tokio::time::timeout(REQUEST_SILENCE, limited.frame()).await;
        match frame.map_err(|_| too_slow("nothing came of the request body", REQUEST_SILENCE))? {
            None => return Ok(whole.into_bytes()),
            Some(Ok(frame)) => {
                let Ok(piece) = frame.into_data() else { continue };
                // The reservation grows with the received bytes, because a declared size may be a lie.
                room.grow((whole.length() + piece.len()) as u64)?;
                whole.add(piece);
            }
            Some(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(CallRefusal::BodyTooLarge(largest).into());
            }
            Some(Err(error)) => {
                return Err(AgentError::bad_request(format!("the request body broke off: {error}")));
            }
        }
    }
}

/// Reads the rest of a rejected request's body. The kernel resets a connection that is closed with unread bytes, and a
/// client that still sends would then never read the error.
pub(crate) async fn discard(headers: &HeaderMap, body: &mut Incoming) {
    // A client with `Expect: 100-continue` has not sent the body yet, and reads the error instead of the 100.
    if body.is_end_stream() || headers.contains_key(header::EXPECT) {
        return;
    }
    let read = async {
        let mut left = DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, |piece| piece.len() as u64);
            let Some(rest) = left.checked_sub(size) else { return };
            left = rest;
        }
    };
    // After the timeout the answer is sent all the same.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, read).await;
}

fn too_slow(what: &str, time: Duration) -> AgentError {
    let message = format!("{what} for {} s", time.as_secs());
    AgentError::new(StatusCode::REQUEST_TIMEOUT, "BadRequestError", message)
}

/// The part of a body that has arrived. A body of a single piece is not copied.
///
/// The pieces of a larger body are copied at once, so that hyper reads the next piece into the same buffer.
#[derive(Debug)]
struct GatheredBody {
    first: Bytes,
    /// All pieces. Empty until the second piece arrives.
    joined: Vec<u8>,
    /// The declared length.
    declared: u64,
}

impl GatheredBody {
    fn of_length(declared: u64) -> Self {
        Self { first: Bytes::new(), joined: Vec::new(), declared }
    }

    fn length(&self) -> usize {
        self.first.len().max(self.joined.len())
    }

    fn add(&mut self, piece: Bytes) {
        if self.length() == 0 {
            self.first = piece;
            return;
        }
        if self.joined.is_empty() {
            self.joined.reserve(usize::try_from(self.declared).unwrap_or(MOST_RESERVED).min(MOST_RESERVED));
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&piece);
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.into() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_body_is_its_pieces_in_order(pieces: Vec<Vec<u8>>, declared: u64) {
            let mut whole = GatheredBody::of_length(declared);
            for piece in &pieces {
                whole.add(Bytes::copy_from_slice(piece));
            }
            let expected = pieces.concat();
            prop_assert_eq!(whole.length(), expected.len());
            prop_assert_eq!(whole.into_bytes(), expected);
        }
    }
}
