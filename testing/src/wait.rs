//! Waits for conditions.

use std::time::{Duration, Instant};

use crate::limit;

/// The time after which a condition counts as never met, in seconds on a quiet machine.
const PATIENCE_SECONDS: u64 = 120;
const PAUSE: Duration = Duration::from_millis(20);

/// Blocks until `holds` returns true.
///
/// # Panics
/// It returned false for two minutes of a quiet machine; the message names `what`.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit(PATIENCE_SECONDS);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until `holds` resolves to true. [`until`] for asynchronous tests.
///
/// # Panics
/// It resolved to false for two minutes of a quiet machine; the message names `what`.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit(PATIENCE_SECONDS);
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
