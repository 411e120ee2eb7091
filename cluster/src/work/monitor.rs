//! The coordinator's side: the states of the trials of a job, and the workers that fell silent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::key::TrialKey;
use super::queue::{Stored, WorkError, WorkQueue};
use super::seen::{SILENCE, Seen, lock};
use super::state::TrialState;
use super::worker::{BEAT, WorkerRecord};
use crate::cluster::entry::Written;

/// The time between two looks at the workers.
const LOOK: Duration = Duration::from_secs(2);
/// The pause before the states are watched again.
const AGAIN: Duration = Duration::from_secs(1);

/// Watches the trials of a job that were offered to workers. A trial whose worker falls silent is given up.
#[derive(Debug)]
pub struct JobMonitor {
    queue: WorkQueue,
    job: Uuid,
    shared: Arc<Mutex<Seen>>,
    _watching: AbortOnDropHandle<()>,
    _judging: AbortOnDropHandle<()>,
}

/// The states of one trial, as they change. The monitor forgets the trial when this is dropped.
#[derive(Debug)]
pub struct TrialWatch {
    key: TrialKey,
    states: watch::Receiver<Option<Stored>>,
    shared: Arc<Mutex<Seen>>,
}

impl JobMonitor {
    /// Starts to watch the trials of a job.
    pub fn start(queue: &WorkQueue, job: Uuid) -> Self {
        let shared = Arc::new(Mutex::new(Seen::new(job)));
        let watching = tokio::spawn(watch_all(queue.clone(), job, Arc::clone(&shared)));
        let judging = tokio::spawn(judge(queue.clone(), Arc::clone(&shared)));
        Self {
            queue: queue.clone(),
            job,
            shared,
            _watching: AbortOnDropHandle::new(watching),
            _judging: AbortOnDropHandle::new(judging),
        }
    }

    /// The queue of the trials.
    pub fn queue(&self) -> &WorkQueue {
        &self.queue
    }

    /// The key of a trial of the job.
    pub fn key(&self, trial: &str) -> TrialKey {
        TrialKey { job: self.job, trial: trial.to_owned() }
    }

    /// The workers whose heartbeats arrive.
    pub fn workers(&self) -> Vec<WorkerRecord> {
        lock(&self.shared).workers()
    }

    /// Begins to watch a trial. If its state is known to NATS already, that is read first.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn watch(&self, trial: &str) -> Result<TrialWatch, WorkError> {
        let key = self.key(trial);
        let read = self.queue.read(&key).await?;
        let states = lock(&self.shared).watch(&key, read);
        Ok(TrialWatch { key, states, shared: Arc::clone(&self.shared) })
    }

    /// Asks the worker of a trial to stop it, or withdraws the trial if no worker has it. Returns the state afterwards.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn stop(&self, trial: &str) -> Result<TrialState, WorkError> {
        let key = self.key(trial);
        loop {
            let stored = self.queue.read(&key).await?;
            let (next, revision) = match stored {
                None => (TrialState::Withdrawn, 0),
                Some(Stored { state: TrialState::Running { worker, name }, revision }) => {
                    (TrialState::Stopping { worker, name }, revision)
                }
                Some(Stored { state, .. }) => return Ok(state),
            };
            if let Written::Done(_) = self.queue.write(&key, &next, revision).await? {
                return Ok(next);
            }
        }
    }

    /// Gives a trial up that has not ended. Whatever its worker still does has no effect. Returns the state afterwards.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn give_up(&self, trial: &str, reason: &str) -> Result<TrialState, WorkError> {
        give_up(&self.queue, &self.key(trial), reason).await
    }
}

async fn give_up(queue: &WorkQueue, key: &TrialKey, reason: &str) -> Result<TrialState, WorkError> {
    loop {
        let stored = queue.read(key).await?;
        let (next, revision) = match &stored {
            None => (TrialState::Withdrawn, 0),
            Some(Stored { state, revision }) => match state.holder() {
                Some((_, name)) => {
                    (TrialState::Lost { name: name.to_owned(), reason: reason.to_owned() }, *revision)
                }
                None => return Ok(state.clone()),
            },
        };
        if let Written::Done(_) = queue.write(key, &next, revision).await? {
            return Ok(next);
        }
    }
}

impl TrialWatch {
    /// The present state. `None` while the trial is in the queue.
    pub fn state(&self) -> Option<TrialState> {
        self.states.borrow().as_ref().map(|stored| stored.state.clone())
    }

    /// Waits for another state, and returns it.
    pub async fn changed(&mut self) -> Option<TrialState> {
        // The sender is dropped with this value only.
        if self.states.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.state()
    }
}

impl Drop for TrialWatch {
    fn drop(&mut self) {
        lock(&self.shared).forget(&self.key);
    }
}

async fn watch_all(queue: WorkQueue, job: Uuid, shared: Arc<Mutex<Seen>>) {
    loop {
        match queue.bucket().watch_many_with_history(WorkQueue::watched(job)).await {
            Ok(mut entries) => {
                while let Some(entry) = entries.next().await {
                    match entry {
                        Ok(entry) => lock(&shared).take(&entry),
                        Err(error) => {
                            tracing::debug!(%error, "the states of trials are watched again");
                            break;
                        }
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "the states of trials cannot be watched"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Gives up the trials of silent workers.
async fn judge(queue: WorkQueue, shared: Arc<Mutex<Seen>>) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (key, value) = lock(&shared).own_heartbeat();
    loop {
        ticks.tick().await;
        let beat = timeout(BEAT, queue.bucket().put(&key, value.clone())).await;
        if !matches!(beat, Ok(Ok(_))) {
            tracing::debug!(?beat, "the heartbeat of a job is not written");
            continue;
        }
        let silent = lock(&shared).silent();
        for key in silent {
            let reason = format!("no heartbeat for {} s", SILENCE.as_secs());
            match give_up(&queue, &key, &reason).await {
                Ok(state) => tracing::debug!(trial = key.trial, ?state, "the worker of a trial is silent"),
                Err(error) => {
                    tracing::warn!(%error, trial = key.trial, "a trial of a silent worker is not given up yet");
                }
            }
        }
    }
}
