//! The rate of a trial's calls (`max_calls_per_minute`).

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// The calls of the last minute, as one time: a generic cell rate algorithm. The state is empty until a trial with the
/// limit makes a call.
#[derive(Debug, Default)]
pub(super) struct CallRate {
    /// The time from which on a whole minute's calls may come at once.
    recovered_at: Option<Instant>,
}

impl CallRate {
    /// Returns how long the next call must wait. Zero if it may come now.
    pub(super) fn wait(&self, per_minute: NonZeroU32, now: Instant) -> Duration {
        let after = self.after(per_minute, now);
        after.saturating_duration_since(now).saturating_sub(MINUTE)
    }

    /// Counts a call.
    pub(super) fn count(&mut self, per_minute: NonZeroU32, now: Instant) {
        self.recovered_at = Some(self.after(per_minute, now));
    }

    /// Returns the time of recovery after one more call.
    fn after(&self, per_minute: NonZeroU32, now: Instant) -> Instant {
        self.recovered_at.map_or(now, |at| at.max(now)) + MINUTE / per_minute.get()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(per_minute: u32) -> NonZeroU32 {
        NonZeroU32::new(per_minute).unwrap()
    }

    #[test]
    fn a_minutes_calls_come_at_once_and_then_at_the_rate() {
        let (mut calls, start) = (CallRate::default(), Instant::now());
        let mut admit = |millis| {
            let now = start + Duration::from_millis(millis);
            let wait = calls.wait(rate(6), now);
            if wait.is_zero() {
                calls.count(rate(6), now);
            }
            wait.as_millis()
        };
        assert_eq!([0; 6].map(&mut admit), [0; 6]);
        assert_eq!([admit(0), admit(4_000), admit(10_000), admit(10_000)], [10_000, 6_000, 0, 10_000]);
        assert_eq!([120_000; 7].map(&mut admit), [0, 0, 0, 0, 0, 0, 10_000]);
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_the_rate_and_the_burst(
            per_minute in 1..100_u32,
            pauses in proptest::collection::vec(0..20_000_u64, 1..200),
        ) {
            let (mut calls, mut now) = (CallRate::default(), Instant::now());
            let mut admitted = Vec::new();
            for pause in pauses {
                now += Duration::from_millis(pause);
                if calls.wait(rate(per_minute), now).is_zero() {
                    calls.count(rate(per_minute), now);
                    admitted.push(now);
                }
            }
            for (index, &first) in admitted.iter().enumerate() {
                let in_minute = admitted.iter().skip(index).filter(|&&at| at < first + MINUTE).count();
                prop_assert!(in_minute <= 2 * per_minute as usize);
            }
        }
    }
}
