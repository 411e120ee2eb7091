//! The bodies of agents' requests: read whole, or discarded where a request is refused before.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::agent_plane::body_budget::Reservation;
use crate::agent_plane::error::AgentError;
use crate::trial::CallRefusal;

/// Long contexts with images; vLLM itself has no limit.
const LARGEST_REQUEST: u64 = 256 << 20;
/// A client that has sent nothing of its body for this long is gone or means harm.
const REQUEST_SILENCE: Duration = Duration::from_secs(60);
/// One that has not sent all of it within this time is on no line that calls could be made over, and holds memory.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(10);
/// Of the body of a refused request, as much is read. A client that sends more may find the connection closed before it has the
/// answer.
const DISCARDED: u64 = 32 << 20;
/// For at most so long.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads a body of at most `largest` bytes, whose room in memory it takes meanwhile. A request whose body is too large, too slow
/// or breaks off is no call.
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
    // Where the head tells the size, nothing of it needs to be read.
    if body.size_hint().lower() > largest {
        return Err(CallRefusal::BodyTooLarge(largest).into());
    }
    let limited = Limited::new(body, usize::try_from(largest).unwrap_or(usize::MAX));
    let mut limited = std::pin::pin!(limited);
    let (mut pieces, mut size) = (Vec::new(), 0);
    loop {
        let frame = tokio::time::timeout(REQUEST_SILENCE, limited.frame()).await;
        match frame.map_err(|_| too_slow("nothing came of the request body", REQUEST_SILENCE))? {
            None => return Ok(joined(pieces)),
            Some(Ok(frame)) => {
                let Ok(piece) = frame.into_data() else { continue };
                size += piece.len() as u64;
                room.grow(size)?;
                pieces.push(piece);
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

/// Reads what is left of a refused request's body. A connection that is closed with bytes unread is reset, and a client that
/// still sends then never reads why it was refused.
pub(crate) async fn discard(headers: &HeaderMap, body: &mut Incoming) {
    // Such a client waits for the 100 before it sends the body, and reads the refusal instead.
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
    // Where the time is over, the answer goes out all the same.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, read).await;
}

fn too_slow(what: &str, time: Duration) -> AgentError {
    let message = format!("{what} for {} s", time.as_secs());
    AgentError::new(StatusCode::REQUEST_TIMEOUT, "BadRequestError", message)
}

/// The pieces of a body as one.
pub(crate) fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    match (pieces.pop(), pieces.is_empty()) {
        (None, _) => Bytes::new(),
        (Some(only), true) => only,
        (Some(last), false) => {
            pieces.push(last);
            pieces.concat().into()
        }
    }
}
