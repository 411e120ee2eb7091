//! Whether the pieces of a stream arrive when the server sends them.

use std::time::Duration;

use super::probe::Answer;

/// A shorter stream shows nothing: several events of a fast server arrive at once.
const SHORTEST: Duration = Duration::from_millis(50);
const FEWEST_EVENTS: usize = 8;
/// The events of a piece, on average, from which something collects them. A gateway that buffers passes on several
/// kilobytes at once, which is more than ten events. A client on a busy machine reads up to five at once.
const EVENTS_PER_PIECE: usize = 6;

/// How a stream arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) events: usize,
    pub(super) pieces: usize,
    /// The time from the request to the first piece.
    pub(super) first: Duration,
    /// The time from the request to the last piece.
    pub(super) last: Duration,
}

impl Arrival {
    pub(super) fn of(answer: &Answer) -> Self {
        Self {
            events: memchr::memmem::find_iter(&answer.body, b"data: ").count(),
            pieces: answer.arrivals.len(),
            first: answer.arrivals.first().copied().unwrap_or_default(),
            last: answer.arrivals.last().copied().unwrap_or_default(),
        }
    }

    /// Whether something between the server and the agent collects events before it passes them on.
    pub(super) fn is_buffered(&self) -> bool {
        self.events >= FEWEST_EVENTS && self.last >= SHORTEST && self.pieces * EVENTS_PER_PIECE <= self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pieces_with_many_events_are_a_buffer() {
        let arrival = |events, pieces, last| {
            let last = Duration::from_millis(last);
            Arrival { events, pieces, first: Duration::ZERO, last }.is_buffered()
        };
        assert!(arrival(64, 1, 400) && arrival(64, 8, 400));
        assert!(!arrival(64, 60, 400), "each event in its piece");
        assert!(!arrival(61, 12, 344), "a busy machine");
        assert!(!arrival(64, 1, 5), "too fast to tell");
        assert!(!arrival(4, 1, 400), "too short to tell");
    }
}
