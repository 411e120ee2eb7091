//! A bound for lines of a log that a stranger can cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Admits some lines at once, and then one per interval. It counts the lines in between.
#[derive(Debug)]
pub(crate) struct LogLimit {
    at_once: u32,
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The lines that are admitted without waiting, when `since` was.
    free: u32,
    since: Option<Instant>,
    suppressed: u64,
}

/// An admitted line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The number of lines that were left out since the last admitted line.
    pub(crate) suppressed: u64,
}

impl LogLimit {
    pub(crate) fn new(at_once: u32, interval: Duration) -> Self {
        Self { at_once, interval, state: Mutex::default() }
    }

    /// Admits a line at this time. `None` if there are too many.
    pub(crate) fn admit(&self, now: Instant) -> Option<Admitted> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = state.since.unwrap_or(now);
        let (free, since) = match state.since {
            None => (self.at_once, now),
            Some(_) => {
                let passed =
                    now.saturating_duration_since(since).as_nanos() / self.interval.as_nanos().max(1);
                let passed = u32::try_from(passed).unwrap_or(u32::MAX);
                match state.free.saturating_add(passed) {
                    // A full allowance gains nothing from the time that is left over.
                    free if free >= self.at_once => (self.at_once, now),
                    free => (free, since + self.interval.saturating_mul(passed)),
                }
            }
        };
        state.since = Some(since);
        let Some(left) = free.checked_sub(1) else {
            state.free = 0;
            state.suppressed += 1;
            return None;
        };
        state.free = left;
        Some(Admitted { suppressed: std::mem::take(&mut state.suppressed) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_admitted_at_the_rate_and_counted() {
        let limit = LogLimit::new(3, Duration::from_secs(1));
        let start = Instant::now();
        let at = |millis| limit.admit(start + Duration::from_millis(millis)).map(|line| line.suppressed);
        assert_eq!([at(0), at(0), at(0), at(0), at(999)], [Some(0), Some(0), Some(0), None, None]);
        assert_eq!([at(1000), at(1500), at(2000)], [Some(2), None, Some(1)]);
        assert_eq!([at(60_000), at(60_000), at(60_000), at(60_000)], [Some(0), Some(0), Some(0), None]);
    }

    #[test]
    fn a_day_of_attempts_has_a_bound() {
        let limit = LogLimit::new(20, Duration::from_secs(1));
        let start = Instant::now();
        let attempts = (0..36_000).map(|tenth| start + Duration::from_millis(tenth * 100));
        let admitted = attempts.filter_map(|at| limit.admit(at)).count();
        assert!((3_600..3_622).contains(&admitted), "{admitted} lines in an hour");
    }
}
