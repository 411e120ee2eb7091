//! Whether the store can write. While it cannot, new calls are rejected and calls in flight wait. Accepted events are
//! written once the failing part recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::StoreError;

/// How long the end of a call waits for a failing disk. Then its agent gets an error. The record is still written when
/// the disk recovers.
const DISK_PATIENCE: Duration = Duration::from_secs(5);
/// How long calls wait for the cluster, at their start and at their end. The servers of NATS elect a leader in less.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(15);

/// A part that the store needs to write. Each part fails and recovers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The data directory.
    Disk,
    /// The replicated log of a cluster.
    Log,
    /// The lease of the shard, in a cluster.
    Lease,
}

impl Part {
    fn patience(self) -> Duration {
        match self {
            Self::Disk => DISK_PATIENCE,
            Self::Log | Self::Lease => CLUSTER_PATIENCE,
        }
    }
}

/// Shared by the threads that write and by all users of the store.
#[derive(Clone, Debug)]
pub(crate) struct Health(Arc<watch::Sender<Condition>>);

#[derive(Clone, Debug, Default)]
struct Condition {
    /// The parts that fail, in the order in which they began to.
    failing: Vec<Failure>,
    /// Why nothing can be written any more. This condition is final.
    ended: Option<StoreError>,
}

#[derive(Clone, Debug)]
struct Failure {
    part: Part,
    since: Instant,
    error: StoreError,
}

impl Failure {
    /// Waits for a change of the condition. Returns whether none came while the part may fail.
    async fn lasts(&self, changes: &mut watch::Receiver<Condition>) -> bool {
        tokio::time::timeout_at(self.since + self.part.patience(), changes.changed()).await.is_err()
    }
}

/// A guard in each thread of the store. It marks the store as ended when the thread ends, also by a panic.
pub(super) struct EndOfThread {
    pub(super) health: Health,
    /// Whether the store is shutting down, which ends its threads on purpose.
    pub(super) is_ending: Arc<AtomicBool>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Condition::default())))
    }

    /// Records that a part works.
    pub(crate) fn is_well(&self, part: Part) {
        let recovered = self.0.send_if_modified(|condition| {
            let failing = condition.failing.len();
            condition.failing.retain(|failure| failure.part != part);
            condition.failing.len() < failing
        });
        if recovered {
            tracing::info!(?part, "the capture store can write again");
        }
    }

    /// Records that a part fails.
    pub(crate) fn fails(&self, part: Part, error: StoreError) {
        self.0.send_if_modified(|condition| {
            // The first failure stays, because the timeout of the waiters counts from it.
            if condition.ended.is_some() || condition.failing.iter().any(|failure| failure.part == part) {
                return false;
            }
            tracing::error!(%error, "no new call is taken until the capture store can write");
            condition.failing.push(Failure { part, since: Instant::now(), error });
            true
        });
    }

    /// Records that nothing can be written any more. The first reason counts.
    pub(crate) fn ends(&self, error: StoreError) {
        self.0.send_if_modified(|condition| {
            let is_first = condition.ended.is_none();
            if is_first {
                condition.ended = Some(error);
            }
            is_first
        });
    }

    /// Returns the reason if the store cannot write.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let condition = self.0.borrow();
        let failing = condition.failing.first().map(|failure| &failure.error);
        condition.ended.as_ref().or(failing).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Resolves with the reason when nothing can be written any more.
    pub(super) async fn ended(&self) -> StoreError {
        let mut changes = self.0.subscribe();
        // The wait cannot fail: `self` holds the sender.
        let ended = changes.wait_for(|condition| condition.ended.is_some()).await;
        ended.ok().and_then(|condition| condition.ended.clone()).unwrap_or(StoreError::Closed)
    }

    /// Resolves with the error for the waiters when writing has failed for `PATIENCE`, or when nothing can be written any
    /// more.
    pub(super) async fn is_given_up(&self) -> StoreError {
        let mut changes = self.0.subscribe();
        loop {
            let Condition { failing, ended } = changes.borrow_and_update().clone();
            if let Some(error) = ended {
                return error;
            }
            match failing.into_iter().next() {
                None => {
                    // The wait cannot fail: `self` holds the sender.
                    let _ = changes.changed().await;
                }
                Some(failure) if failure.lasts(&mut changes).await => return failure.error,
                Some(_) => {}
            }
        }
    }

    /// Waits until the store can write. Fails at once if the disk does not work, and after a time if the cluster does
    /// not.
    pub(super) async fn admit(&self) -> Result<(), StoreError> {
        if self.check().is_ok() {
            return Ok(());
        }
        let mut changes = self.0.subscribe();
        loop {
            let Condition { failing, ended } = changes.borrow_and_update().clone();
            if let Some(error) = ended {
                return Err(error);
            }
            let refusing = failing.iter().find(|failure| failure.part == Part::Disk);
            if let Some(failure) = refusing {
                return Err(failure.error.clone());
            }
            match failing.into_iter().next() {
                None => return Ok(()),
                Some(failure) if failure.lasts(&mut changes).await => return Err(failure.error),
                Some(_) => {}
            }
        }
    }
}

impl Drop for EndOfThread {
    fn drop(&mut self) {
        if self.is_ending.load(Ordering::Relaxed) {
            return;
        }
        self.health.ends(StoreError::WriterEnded);
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
        assert!(matches!(health.ended().await, StoreError::WriterEnded));
        health.is_well(Part::Disk);
        health.fails(Part::Disk, StoreError::Closed);
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
        health.fails(Part::Disk, failure());
        assert!(health.check().unwrap_err().to_string().contains("full"));
        let waited = health.is_given_up();
        let recovers = async {
            tokio::time::sleep(DISK_PATIENCE / 2).await;
            health.is_well(Part::Disk);
            assert!(health.check().is_ok());
            tokio::time::sleep(DISK_PATIENCE).await;
            health.fails(Part::Disk, failure());
        };
        let started = Instant::now();
        let (error, ()) = tokio::join!(waited, recovers);
        assert!(error.to_string().contains("full"));
        assert_eq!(started.elapsed(), DISK_PATIENCE * 5 / 2);
    }

    #[test]
    fn each_part_recovers_alone() {
        let health = Health::new();
        health.fails(Part::Log, StoreError::Closed);
        health.is_well(Part::Disk);
        assert!(matches!(health.check(), Err(StoreError::Closed)));
        health.is_well(Part::Log);
        assert!(health.check().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_the_cluster_and_not_for_the_disk() {
        let health = Health::new();
        health.fails(Part::Log, StoreError::Closed);
        let started = Instant::now();
        assert!(health.admit().await.is_err());
        assert_eq!(started.elapsed(), CLUSTER_PATIENCE);

        health.is_well(Part::Log);
        health.fails(Part::Lease, StoreError::Closed);
        let recovers = async {
            tokio::time::sleep(CLUSTER_PATIENCE / 2).await;
            health.is_well(Part::Lease);
        };
        let (admitted, ()) = tokio::join!(health.admit(), recovers);
        assert!(admitted.is_ok());

        health.fails(Part::Disk, StoreError::Closed);
        let started = Instant::now();
        assert!(health.admit().await.is_err());
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
