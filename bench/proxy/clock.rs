//! The clock that upstream and load share.

use rustix::time::{ClockId, clock_gettime};

/// Returns microseconds on the machine's monotonic clock, which is the same in all processes.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
