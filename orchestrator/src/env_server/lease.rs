//! The lease of an environment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A lease. It runs from the end of one call to the start of the next, and stands still during a call.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) length: Duration,
    state: Mutex<LeaseState>,
}

#[derive(Debug)]
struct LeaseState {
    callers: usize,
    until: Instant,
}

/// A call in progress. It is dropped when the call is answered or its caller leaves.
#[derive(Debug)]
pub(super) struct Caller(Arc<Lease>);

impl Lease {
    pub(super) fn new(length: Duration) -> Arc<Self> {
        let state = Mutex::new(LeaseState { callers: 0, until: Instant::now() + length });
        Arc::new(Self { length, state })
    }

    pub(super) fn call(self: &Arc<Self>) -> Caller {
        self.state().callers += 1;
        Caller(Arc::clone(self))
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.left(now).is_zero()
    }

    /// Returns the time until the lease ends if there is no further call.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let state = self.state();
        if state.callers > 0 { self.length } else { state.until.saturating_duration_since(now) }
    }

    fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.callers -= 1;
        state.until = Instant::now() + self.0.length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_from_the_end_of_the_last_call_and_not_while_somebody_waits() {
        let in_seconds = |seconds| Instant::now() + Duration::from_secs(seconds);
        let lease = Lease::new(Duration::from_mins(10));
        assert!(!lease.is_over(in_seconds(590)) && lease.is_over(in_seconds(600)));
        let (first, second) = (lease.call(), lease.call());
        drop(first);
        assert!(!lease.is_over(in_seconds(10_000)), "the second still waits");
        drop(second);
        assert!(!lease.is_over(in_seconds(590)) && lease.is_over(in_seconds(600)));
    }
}
