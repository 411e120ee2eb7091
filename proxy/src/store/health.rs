//! Whether the store can write. While it cannot, new calls are rejected and calls in flight wait. Accepted events are
//! written once the disk recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::StoreError;

/// How long the end of a call waits for a failing disk. Then its agent gets an error. The record is still written when
/// the disk recovers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shared by the threads that write and by all users of the store.
#[derive(Clone, Debug)]
pub(super) struct Health(Arc<watch::Sender<Condition>>);

#[derive(Clone, Debug)]
enum Condition {
    Well,
    Failing {
        since: Instant,
        error: StoreError,
    },
    /// A thread of the store has ended. This condition is final.
    Ended,
}

/// A guard in each thread of the store. It marks the store as ended when the thread ends, also by a panic.
pub(super) struct EndOfThread {
    pub(super) health: Health,
    /// Whether the store is shutting down, which ends its threads on purpose.
    pub(super) is_ending: Arc<AtomicBool>,
}

impl Health {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Condition::Well)))
    }

    /// Records that a write succeeded.
    pub(super) fn is_well(&self) {
        let recovered = self.0.send_if_modified(|condition| {
            // Only a failing store recovers. `Ended` is final.
            let failed = matches!(condition, Condition::Failing { .. });
            if failed {
                *condition = Condition::Well;
            }
            failed
        });
        if recovered {
            tracing::info!("the capture store can write again");
        }
    }

    /// Records that a write failed.
    pub(super) fn fails(&self, error: StoreError) {
        self.0.send_if_modified(|condition| {
            // The first failure stays, because the timeout of the waiters counts from it.
            if !matches!(condition, Condition::Well) {
                return false;
            }
            tracing::error!(%error, "no new call is taken until the capture store can write");
            *condition = Condition::Failing { since: Instant::now(), error };
            true
        });
    }

    /// Returns the reason if the store cannot write.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &*self.0.borrow() {
            Condition::Well => Ok(()),
            Condition::Failing { error, .. } => Err(error.clone()),
            Condition::Ended => Err(StoreError::WriterEnded),
        }
    }

    /// Resolves when a thread of the store has ended.
    pub(super) async fn ended(&self) {
        // The wait cannot fail: `self` holds the sender.
        let _ = self.0.subscribe().wait_for(|condition| matches!(condition, Condition::Ended)).await;
    }

    /// Resolves with the error for the waiters when writing has failed for `PATIENCE`, or when a thread has ended.
    pub(super) async fn is_given_up(&self) -> StoreError {
        let mut changes = self.0.subscribe();
        loop {
            let condition = changes.borrow_and_update().clone();
            match condition {
                Condition::Well => {
                    // The wait cannot fail: `self` holds the sender.
                    let _ = changes.changed().await;
                }
                Condition::Failing { since, error } => {
                    if tokio::time::timeout_at(since + PATIENCE, changes.changed()).await.is_err() {
                        return error;
                    }
                }
                Condition::Ended => return StoreError::WriterEnded,
            }
        }
    }
}

impl Drop for EndOfThread {
    fn drop(&mut self) {
        if self.is_ending.load(Ordering::Relaxed) {
            return;
        }
        self.health.0.send_replace(Condition::Ended);
        tracing::error!("a thread of the capture store has ended: no call is taken any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_panics_ends_the_store_for_good() {
        let health = Health::new();
        let end = EndOfThread { health: health.clone(), is_ending: Arc::default() };
        let thread = std::thread::spawn(move || {
            let _end = end;
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        health.ended().await;
        health.is_well();
        health.fails(StoreError::Closed);
        assert!(matches!(health.check(), Err(StoreError::WriterEnded)));
        assert!(matches!(health.is_given_up().await, StoreError::WriterEnded));
    }

    #[test]
    fn a_thread_that_is_finished_on_purpose_is_no_failure() {
        let health = Health::new();
        drop(EndOfThread { health: health.clone(), is_ending: Arc::new(AtomicBool::new(true)) });
        assert!(health.check().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_told_after_a_while_and_not_if_it_recovers() {
        let health = Health::new();
        let failure = || StoreError::Write { path: "p".into(), reason: "full".into() };
        health.fails(failure());
        assert!(health.check().unwrap_err().to_string().contains("full"));
        let waited = health.is_given_up();
        let recovers = async {
            tokio::time::sleep(PATIENCE / 2).await;
            health.is_well();
            assert!(health.check().is_ok());
            tokio::time::sleep(PATIENCE).await;
            health.fails(failure());
        };
        let started = Instant::now();
        let (error, ()) = tokio::join!(waited, recovers);
        assert!(error.to_string().contains("full"));
        assert_eq!(started.elapsed(), PATIENCE * 5 / 2);
    }
}
