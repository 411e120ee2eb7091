//! Waits for conditions.

use std::time::{Duration, Instant};

use crate::limit;

/// The time after which a condition counts as never true, in seconds on a quiet machine.
const PATIENCE_SECONDS: u64 = 120;
const PAUSE: Duration = Duration::from_millis(20);

/// Blocks until `holds` returns true.
///
/// # Panics Panics if `holds` returns false for two minutes of a quiet machine. The message names `what`.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit(PATIENCE_SECONDS);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until `holds` resolves to true, as [`until`] does, for asynchronous tests.
///
/// # Panics Panics if `holds` resolves to false for two minutes of a quiet machine. The message names `what`.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit(PATIENCE_SECONDS);
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
