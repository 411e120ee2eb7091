//! The stream of offers and the bucket of states.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoError, ConsumerInfoErrorKind};
use async_nats::jetstream::kv::{self, Entry, Operation, Store};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use uuid::Uuid;

use super::key::TrialKey;
use super::state::TrialState;
use crate::cluster::entry::{self, Written};
use crate::cluster::{Cluster, ClusterError, json};

/// The time in which NATS must answer a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time after which an offer that a worker took and did not claim is offered again.
const CLAIM_WITHIN: Duration = Duration::from_secs(30);
/// The most offers that workers have taken and not claimed.
const UNCLAIMED: i64 = 100_000;
/// The time in which NATS drops a second copy of an offer.
const DUPLICATES: Duration = Duration::from_mins(2);
/// The age at which a state is removed that its coordinator did not remove.
const KEPT: Duration = Duration::from_hours(30 * 24);
/// The pause between two looks for a queue that no coordinator has created yet.
const LOOK: Duration = Duration::from_secs(2);

/// Why the queue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The queue cannot be opened.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The request was refused or not answered.
    #[error("NATS cannot {action}: {reason}")]
    Nats {
        /// What was asked for, as a verb with its object.
        action: &'static str,
        /// The error of the server or the client.
        reason: String,
    },
    /// The offer is too large for a message.
    #[error(
        "the description of trial {trial} has {bytes} bytes, and NATS takes {limit}: make its sampling or metadata smaller, \
         or set max_payload in the configuration of the NATS servers"
    )]
    TooLarge {
        /// The trial.
        trial: String,
        /// The size of the offer.
        bytes: usize,
        /// The limit of the server.
        limit: usize,
    },
}

impl WorkError {
    pub(super) fn nats(action: &'static str, reason: impl fmt::Display) -> Self {
        Self::Nats { action, reason: reason.to_string() }
    }
}

/// The kind of environment that a trial needs: 1 to 32 letters, digits and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkKind(String);

/// A text that is no kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a kind of trial has 1 to 32 letters, digits and '-', which {0:?} has not")]
pub struct InvalidWorkKind(String);

impl FromStr for WorkKind {
    type Err = InvalidWorkKind;

    fn from_str(text: &str) -> Result<Self, InvalidWorkKind> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if (1..=32).contains(&text.len()) && text.bytes().all(is_valid) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidWorkKind(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for WorkKind {
    type Error = InvalidWorkKind;

    fn try_from(text: String) -> Result<Self, InvalidWorkKind> {
        text.parse()
    }
}

impl From<WorkKind> for String {
    fn from(kind: WorkKind) -> Self {
        kind.0
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The queue of a cluster. Its clones share the connection.
#[derive(Clone, Debug)]
pub struct WorkQueue {
    cluster: Cluster,
    stream: stream::Stream,
    bucket: Store,
}

/// The entry of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) state: TrialState,
    pub(super) revision: u64,
}

impl WorkQueue {
    /// Opens the queue of the cluster for a coordinator of trials of this kind, and creates what is missing of it.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn open(cluster: &Cluster, kind: &WorkKind) -> Result<Self, ClusterError> {
        let (stream_name, bucket_name) = Self::names(cluster);
        let stream = stream::Config {
            name: stream_name,
            subjects: vec![format!("rolltap.{}.queue.*", cluster.name())],
            retention: stream::RetentionPolicy::WorkQueue,
            storage: stream::StorageType::File,
            num_replicas: cluster.replicas(),
            // An offer that no longer fits is refused, and nothing is dropped for it.
            discard: stream::DiscardPolicy::New,
            duplicate_window: DUPLICATES,
            ..stream::Config::default()
        };
        let bucket = kv::Config {
            bucket: bucket_name,
            description: "The trials and workers of a rolltap cluster".to_owned(),
            history: 1,
            max_age: KEPT,
            num_replicas: cluster.replicas(),
            storage: stream::StorageType::File,
            ..kv::Config::default()
        };
        let stream = Box::pin(cluster.open_stream(stream)).await?;
        let bucket = Box::pin(cluster.open_bucket(bucket)).await?;
        let queue = Self { cluster: cluster.clone(), stream, bucket };
        Box::pin(queue.open_consumer(kind)).await?;
        Ok(queue)
    }

    /// Waits until a coordinator has created the queue, and opens it. A worker may lack the right to create it.
    pub async fn wait(cluster: &Cluster) -> Self {
        let (stream, bucket) = Self::names(cluster);
        loop {
            let found = (cluster.find_stream(&stream).await, cluster.find_bucket(&bucket).await);
            if let (Some(stream), Some(bucket)) = found {
                return Self { cluster: cluster.clone(), stream, bucket };
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn names(cluster: &Cluster) -> (String, String) {
        (format!("rolltap-{}-queue", cluster.name()), format!("rolltap-{}-work", cluster.name()))
    }

    /// Puts a trial into the queue. A second copy is harmless, because only one worker claims the trial.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn offer(&self, kind: &WorkKind, key: &TrialKey, offer: Bytes) -> Result<(), WorkError> {
        let (bytes, limit) = (offer.len(), self.cluster.max_payload());
        if bytes > limit {
            return Err(WorkError::TooLarge { trial: key.trial.clone(), bytes, limit });
        }
        let subject = format!("rolltap.{}.queue.{kind}", self.cluster.name());
        let failed = |error: &dyn fmt::Display| WorkError::nats("put a trial into the queue", error);
        let message = PublishMessage::build().payload(offer).message_id(key.to_string());
        let sent = Box::pin(self.cluster.context().send_publish(subject, message)).await;
        let acknowledged = timeout(PATIENCE, sent.map_err(|error| failed(&error))?.into_future()).await;
        acknowledged.map_err(|_| failed(&"no answer"))?.map(drop).map_err(|error| failed(&error))
    }

    /// Creates the consumer of one kind if it is missing. A worker lacks the permission to create one, because a consumer may
    /// deliver to any subject.
    async fn open_consumer(&self, kind: &WorkKind) -> Result<(), ClusterError> {
        let name = kind.to_string();
        let config = pull::Config {
            durable_name: Some(name.clone()),
            description: Some(format!("Trials that need {kind}")),
            ack_policy: AckPolicy::Explicit,
            ack_wait: CLAIM_WITHIN,
            max_ack_pending: UNCLAIMED,
            filter_subject: format!("rolltap.{}.queue.{kind}", self.cluster.name()),
            ..pull::Config::default()
        };
        let opened = self.stream.get_or_create_consumer(&name, config).await;
        let refused = |error| self.cluster.refused(&format!("create the consumer {name}"), &error, "");
        opened.map(drop).map_err(refused)
    }

    /// Opens the offers of one kind. `None` if no coordinator has created them yet.
    pub(super) async fn consumer(&self, kind: &WorkKind) -> Result<Option<PullConsumer>, WorkError> {
        match Box::pin(self.stream.get_consumer(&kind.to_string())).await {
            Ok(consumer) => Ok(Some(consumer)),
            Err(error) => match error.downcast_ref::<ConsumerInfoError>().map(ConsumerInfoError::kind) {
                Some(ConsumerInfoErrorKind::NotFound) => Ok(None),
                _ => Err(WorkError::nats("open the queue", error)),
            },
        }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(super) fn bucket(&self) -> &Store {
        &self.bucket
    }

    /// Returns the state of a trial.
    pub(super) async fn read(&self, key: &TrialKey) -> Result<Option<Stored>, WorkError> {
        Ok(self.entry(key).await?.as_ref().and_then(stored))
    }

    /// Returns the entry of a trial. Any server with a copy answers, so the entry may be older than the latest write.
    pub(super) async fn entry(&self, key: &TrialKey) -> Result<Option<Entry>, WorkError> {
        let failed = |reason: &dyn fmt::Display| WorkError::nats("read the state of a trial", reason);
        let read = timeout(PATIENCE, Box::pin(self.bucket.entry(key.to_string()))).await;
        read.map_err(|_| failed(&"no answer"))?.map_err(|error| failed(&error))
    }

    /// Writes the state of a trial, if the entry still has this revision. 0 stands for no entry.
    pub(super) async fn write(
        &self,
        key: &TrialKey,
        state: &TrialState,
        revision: u64,
    ) -> Result<Written, WorkError> {
        let written = entry::write(&self.bucket, &key.to_string(), json(state), revision, PATIENCE).await;
        let written = written.map_err(|reason| WorkError::nats("write the state of a trial", &reason));
        match written {
            // An earlier attempt may have succeeded although its answer was lost.
            Ok(Written::Conflict) | Err(_) => match self.read(key).await {
                Ok(Some(found)) if found.state == *state => Ok(Written::Done(found.revision)),
                _ => written,
            },
            done => done,
        }
    }

    /// Removes the state of a trial whose result the coordinator has.
    ///
    /// # Errors
    /// NATS does not answer, or refuses.
    pub async fn forget(&self, key: &TrialKey) -> Result<(), WorkError> {
        let removed = timeout(PATIENCE, Box::pin(self.bucket.delete(key.to_string()))).await;
        let failed = |reason: &dyn fmt::Display| WorkError::nats("remove the state of a trial", reason);
        removed.map_err(|_| failed(&"no answer"))?.map_err(|error| failed(&error))
    }

    /// The keys of a job and of the workers, for a watch.
    pub(super) fn watched(job: Uuid) -> [String; 2] {
        [format!("{}>", TrialKey::prefix(job)), "worker.>".to_owned()]
    }
}

/// Reads an entry of a trial. `None` if it was deleted, or cannot be read.
pub(super) fn stored(entry: &Entry) -> Option<Stored> {
    if entry.operation != Operation::Put {
        return None;
    }
    let state = serde_json::from_slice(&entry.value).inspect_err(
        |error| tracing::error!(%error, key = entry.key, "the state of a trial cannot be read; it is of another version of rolltap"),
    );
    Some(Stored { state: state.ok()?, revision: entry.revision })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_a_part_of_a_subject() {
        assert_eq!("docker".parse::<WorkKind>().unwrap().to_string(), "docker");
        for bad in ["", "a.b", "*", "a b", &"x".repeat(33)] {
            assert!(bad.parse::<WorkKind>().is_err(), "{bad}");
        }
    }
}
