//! The rate of sampled tokens in the last minute.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time over which the rate is a mean.
const WINDOW: Duration = Duration::from_secs(60);

/// The tokens of the last minute, in pieces.
#[derive(Debug, Default)]
pub(super) struct TokenRate {
    pieces: VecDeque<(Instant, u64)>,
}

impl TokenRate {
    /// Adds tokens that became known at this time.
    pub(super) fn add(&mut self, tokens: u64, now: Instant) {
        if tokens == 0 {
            return;
        }
        self.pieces.push_back((now, tokens));
        while self.pieces.front().is_some_and(|(at, _)| is_old(*at, now)) {
            self.pieces.pop_front();
        }
    }

    /// Returns the mean of the last minute, or of the time since `start` if that is shorter. `None` without tokens.
    pub(super) fn per_second(&self, start: Instant, now: Instant) -> Option<f64> {
        let recent = self.pieces.iter().filter(|(at, _)| !is_old(*at, now));
        let tokens: u64 = recent.map(|(_, tokens)| tokens).sum();
        // A shorter time would make the first tokens look like a high rate.
        let time = now.saturating_duration_since(start).clamp(Duration::from_secs(1), WINDOW);
        (tokens > 0).then(|| tokens as f64 / time.as_secs_f64())
    }
}

fn is_old(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) > WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_tokens_do_not_count() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut rate = TokenRate::default();
        assert_eq!(rate.per_second(start, at(5)), None);
        rate.add(100, at(5));
        assert_eq!(rate.per_second(start, at(10)), Some(10.0));
        rate.add(600, at(64));
        assert_eq!(rate.per_second(start, at(100)), Some(10.0));
        assert_eq!(rate.per_second(start, at(200)), None);
    }
}
