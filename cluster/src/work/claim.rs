//! The worker's side: offers, and the trials that it has claimed.

use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Batch;
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use futures_util::StreamExt;

use super::key::TrialKey;
use super::queue::{WorkError, WorkKind, WorkQueue, stored};
use super::state::TrialState;
use super::worker::WorkerId;
use crate::cluster::entry::Written;

/// The time for which a request waits for offers.
const WAIT: Duration = Duration::from_secs(5);
/// The action of errors.
const TAKE: &str = "take a trial from the queue";
/// The time after which an offer is offered again that a worker hands back.
const AGAIN: Duration = Duration::from_secs(1);

/// The pause in which a server catches up whose copy of an entry is old.
const CATCH_UP: Duration = Duration::from_millis(100);
/// The attempts to write the end of a trial, each after such a pause. They take longer than servers lag behind.
const END_ATTEMPTS: u32 = 100;

/// The offers of one kind.
#[derive(Debug)]
pub struct Offers {
    queue: WorkQueue,
    consumer: PullConsumer,
}

/// The offers that arrive for one request.
#[expect(missing_debug_implementations, reason = "the client library's type has none")]
pub struct RequestedOffers {
    queue: WorkQueue,
    messages: Batch,
}

/// An offer that this worker took and has not claimed. If it is dropped, it is offered again after half a minute.
#[derive(Debug)]
pub struct Offer {
    queue: WorkQueue,
    message: Message,
}

/// A trial that this worker runs.
#[derive(Clone, Debug)]
pub struct Claim {
    queue: WorkQueue,
    key: TrialKey,
    worker: WorkerId,
    name: String,
    revision: u64,
}

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// The worker runs the trial.
    Running,
    /// The coordinator wants the trial to stop.
    Stopping,
    /// The coordinator has given the trial up. The result of this worker no longer counts.
    Gone,
}

impl WorkQueue {
    /// Opens the offers of one kind. `None` if no coordinator of such trials has opened the queue yet.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn offers(&self, kind: &WorkKind) -> Result<Option<Offers>, WorkError> {
        let consumer = self.consumer(kind).await?;
        Ok(consumer.map(|consumer| Offers { queue: self.clone(), consumer }))
    }
}

impl Offers {
    /// Asks for at most `most` offers. The request ends after some seconds.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn request(&self, most: usize) -> Result<RequestedOffers, WorkError> {
        let request = self.consumer.batch().max_messages(most).expires(WAIT).messages();
        let messages = Box::pin(request).await;
        let messages = messages.map_err(|error| WorkError::nats(TAKE, error))?;
        Ok(RequestedOffers { queue: self.queue.clone(), messages })
    }
}

impl RequestedOffers {
    /// Waits for the next offer. Returns `None` at the end of the request.
    ///
    /// # Errors
    /// NATS does not answer, or refuses. Earlier offers are not lost.
    pub async fn next(&mut self) -> Result<Option<Offer>, WorkError> {
        let Some(message) = self.messages.next().await else { return Ok(None) };
        let message = message.map_err(|error| WorkError::nats(TAKE, error))?;
        Ok(Some(Offer { queue: self.queue.clone(), message }))
    }
}

impl Offer {
    /// The trial of the offer. `None` for a message that is no offer.
    pub fn key(&self) -> Option<TrialKey> {
        let id = self.message.headers.as_ref()?.get(NATS_MESSAGE_ID)?;
        TrialKey::parse(id.as_str())
    }

    /// The document of the coordinator.
    pub fn content(&self) -> &Bytes {
        &self.message.payload
    }

    /// Claims the trial for this worker, and removes it from the queue. Returns `None` if another worker has claimed it
    /// before, or the coordinator has withdrawn it.
    ///
    /// # Errors
    /// NATS does not answer, or refuses. The trial is offered again then.
    pub async fn claim(
        self,
        key: TrialKey,
        worker: WorkerId,
        name: &str,
    ) -> Result<Option<Claim>, WorkError> {
        let Self { queue, message } = self;
        let state = TrialState::Running { worker, name: name.to_owned() };
        let written = Box::pin(queue.write(&key, &state, 0)).await?;
        // If this acknowledgement is lost, a second worker takes the offer, and finds the claim.
        if let Err(error) = Box::pin(message.ack()).await {
            tracing::debug!(error, trial = key.trial, "the offer of a claimed trial is not acknowledged");
        }
        Ok(match written {
            Written::Done(revision) => Some(Claim { queue, key, worker, name: name.to_owned(), revision }),
            Written::Conflict => None,
        })
    }

    /// Removes an offer that no worker can read.
    pub async fn discard(self) {
        if let Err(error) = Box::pin(self.message.ack_with(AckKind::Term)).await {
            tracing::debug!(error, "an offer is not removed");
        }
    }

    /// Hands the offer back to the queue, for other workers.
    pub async fn hand_back(self) {
        if let Err(error) = Box::pin(self.message.ack_with(AckKind::Nak(Some(AGAIN)))).await {
            tracing::debug!(error, "an offer is handed back later");
        }
    }
}

impl Claim {
    /// The trial.
    pub fn key(&self) -> &TrialKey {
        &self.key
    }

    /// Reads the state of the claim.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn look(&mut self) -> Result<ClaimState, WorkError> {
        let entry = self.queue.entry(&self.key).await?;
        // A server whose copy lags behind answers with an older entry, or with none.
        let Some(entry) = entry.filter(|entry| entry.revision >= self.revision) else {
            return Ok(ClaimState::Running);
        };
        let Some(stored) = stored(&entry) else { return Ok(ClaimState::Gone) };
        let is_own = stored.state.holder().is_some_and(|(worker, _)| worker == self.worker);
        if !is_own {
            return Ok(ClaimState::Gone);
        }
        self.revision = stored.revision;
        Ok(match stored.state {
            TrialState::Stopping { .. } => ClaimState::Stopping,
            _ => ClaimState::Running,
        })
    }

    /// Writes the final state of the trial. Returns false if the coordinator gave the trial up before: then the state has no
    /// effect.
    ///
    /// # Errors
    /// NATS does not answer, or refuses. A second call is safe.
    pub async fn end(&mut self, state: &TrialState) -> Result<bool, WorkError> {
        for _ in 0..END_ATTEMPTS {
            match self.queue.write(&self.key, state, self.revision).await? {
                Written::Done(_) => return Ok(true),
                // The coordinator may have asked for a stop meanwhile.
                Written::Conflict => match self.look().await? {
                    ClaimState::Gone => return Ok(false),
                    ClaimState::Running | ClaimState::Stopping => tokio::time::sleep(CATCH_UP).await,
                },
            }
        }
        // The entry was removed, as by a purge of the bucket.
        Ok(false)
    }

    /// The name of the worker.
    pub fn worker_name(&self) -> &str {
        &self.name
    }
}
