//! Workers and their heartbeats.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::queue::{WorkError, WorkKind, WorkQueue};
use crate::cluster::json;

/// The time between two heartbeats.
pub(super) const BEAT: Duration = Duration::from_secs(3);
/// The time in which NATS must answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The identity of a worker process. A worker that is started again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(Uuid);

/// What a worker says about itself with each heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The name for people.
    pub name: String,
    /// The kinds of trials that it takes.
    pub kinds: Vec<WorkKind>,
    /// The number of trials that it runs at once.
    pub slots: usize,
    /// The number of trials that it runs now.
    pub running: usize,
    /// Whether it takes no further trial.
    pub draining: bool,
}

impl WorkerId {
    /// Makes a new identity.
    #[expect(clippy::new_without_default, reason = "each identity is another one")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    pub(super) fn key(self) -> String {
        format!("worker.{self}")
    }

    pub(super) fn of_key(key: &str) -> Option<Self> {
        key.strip_prefix("worker.")?.parse().ok().map(Self)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The heartbeats of this process, which end when this is dropped.
#[derive(Debug)]
pub struct Heartbeat {
    id: WorkerId,
    queue: WorkQueue,
    record: watch::Sender<WorkerRecord>,
    _beating: AbortOnDropHandle<()>,
}

impl Heartbeat {
    /// Writes the first heartbeat, and begins to write further ones. A worker claims no trial before.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn start(queue: &WorkQueue, id: WorkerId, record: WorkerRecord) -> Result<Self, WorkError> {
        let failed = |reason: &dyn fmt::Display| WorkError::nats("write the heartbeat of a worker", reason);
        let written = timeout(PATIENCE, Box::pin(queue.bucket().put(id.key(), json(&record)))).await;
        written.map_err(|_| failed(&"no answer"))?.map_err(|error| failed(&error))?;
        let (record, records) = watch::channel(record);
        let beating = queue.cluster().spawn(beat(queue.clone(), id, records));
        Ok(Self { id, queue: queue.clone(), record, _beating: AbortOnDropHandle::new(beating) })
    }

    /// Changes the record. The next heartbeat has it.
    pub fn change(&self, change: impl FnOnce(&mut WorkerRecord)) {
        self.record.send_modify(change);
    }

    /// Removes the record of the worker, which holds no trial any more.
    pub async fn leave(self) {
        let Self { id, queue, record, _beating } = self;
        drop((record, _beating));
        let removed = timeout(PATIENCE, Box::pin(queue.bucket().delete(id.key()))).await;
        if !matches!(removed, Ok(Ok(()))) {
            tracing::debug!(?removed, "the record of this worker remains");
        }
    }
}

async fn beat(queue: WorkQueue, id: WorkerId, records: watch::Receiver<WorkerRecord>) {
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_away = false;
    loop {
        ticks.tick().await;
        let record = json(&*records.borrow());
        let written = timeout(PATIENCE, Box::pin(queue.bucket().put(id.key(), record))).await;
        let failed = !matches!(written, Ok(Ok(_)));
        if failed && !is_away {
            tracing::warn!(?written, "NATS does not take the heartbeat of this worker; it is sent again");
        } else if is_away && !failed {
            tracing::info!("NATS takes the heartbeats of this worker again");
        }
        is_away = failed;
    }
}
