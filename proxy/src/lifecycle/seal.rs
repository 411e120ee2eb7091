//! Seals trials.

use std::sync::Arc;

use tokio::task::JoinError;

use super::open::Lifecycle;
use crate::common::to_the_end::to_the_end;
use crate::store::{self, Event, StoreError};
use crate::traces::TrialSpan;
use crate::trial::Trial;

/// The reason why a trial is not known to be sealed. The caller may repeat the seal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The runtime is shutting down, or the task panicked.
    #[error("it was cut off: {0}")]
    CutOff(#[from] JoinError),
}

impl Lifecycle {
    /// Seals a trial: ends its calls in flight, and returns once their records and the seal are durable. Idempotent.
    pub(crate) async fn seal(&self, trial: &Arc<Trial>) -> Result<(), SealError> {
        let (lifecycle, trial) = (self.clone(), Arc::clone(trial));
        to_the_end(async move { lifecycle.seal_durably(&trial).await }).await
    }

    async fn seal_durably(&self, trial: &Trial) -> Result<(), SealError> {
        let Self { feed, store, upstream, .. } = self;
        let trial_id = &trial.opened().facts.trial_id;
        // The place is reserved first, so that the store can write the seal even if the disk fails meanwhile.
        let place = store.reserve().await?;
        let (at, is_new) = trial.seal();
        upstream.forget(trial_id);
        // No await stands between the change and the queue: the flush of another request must not overtake the event.
        let sealed = || Event::Sealed { trial_id: trial_id.clone(), at };
        let event = if is_new { sealed() } else { Event::Flush };
        store::outcome(place.append(event).await)?;
        if is_new {
            let summary = trial.summary(store).await.as_ref().clone();
            if let Some(tracer) = &self.observers.tracer {
                TrialSpan::of(tracer, trial.opened()).sealed(tracer, trial.opened(), at, &summary);
            }
            let trial_id = trial_id.clone();
            // A failure is ignored: without a stored summary, the next process computes it from the calls.
            drop(store.reserve().await.map(|place| place.append(Event::Summed { trial_id, summary })));
        }
        // The calls leave memory only now, because the summary needs them.
        trial.rest();
        feed.ledger().sealed(trial_id, at);
        feed.settled().await;
        Ok(())
    }
}
