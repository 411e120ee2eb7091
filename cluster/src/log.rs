//! The replicated log of a shard: a JetStream stream that one node appends to.
//!
//! Each message is published with the sequence number that the stream must have before it. So a node whose knowledge of
//! the stream is old can append nothing. A new holder of the shard first reads the whole log, and then appends the message of
//! its epoch. From then on the sequence that any earlier holder expects is wrong, or the message does not count
//! ([`crate::message::LogOrder`]), whenever it arrives.

use std::time::Duration;

use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::cluster::{Cluster, ClusterError};
pub use crate::message::LogEntry;
use crate::message::{ForeignMessage, LogMessage, LogOrder, WriterId};

/// How long a reader waits for the next message of a log. Without this limit it may wait for ever: after a missed heartbeat,
/// the ordered consumer of async-nats 0.51 returns without a waker.
const PATIENCE: Duration = Duration::from_secs(5);

/// The log of a shard, before this node may append to it.
#[derive(Debug)]
pub struct ShardLog {
    cluster: Cluster,
    pub(crate) stream: Stream,
    pub(crate) subject: String,
    /// The sequence number of the last message that was read.
    last: u64,
    /// The last message whose content is stored elsewhere, which counts.
    anchor: Option<u64>,
    order: LogOrder,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError<E> {
    /// NATS failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A message is not of this format.
    #[error(
        "message {sequence} of the stream {stream} cannot be read: {reason}; give another --cluster-name, or use the newer rolltap that wrote it"
    )]
    Foreign {
        /// The stream.
        stream: String,
        /// The sequence number.
        sequence: u64,
        /// What is wrong.
        reason: ForeignMessage,
    },
    /// Messages that should be in the stream are not.
    #[error(
        "the stream {stream} has messages {first} to {last}, and message {expected} must follow what is in object storage: \
         the storage returned an old manifest, the stream was deleted or purged, or this node lacks the \
         --cluster-objects of the others"
    )]
    Missing {
        /// The stream.
        stream: String,
        /// The first message that is there.
        first: u64,
        /// The last message that is there.
        last: u64,
        /// The message that is needed.
        expected: u64,
    },
    /// The reader of the entries failed.
    #[error("message {sequence} of the stream {stream} cannot be applied: {reason}")]
    Applied {
        /// The stream.
        stream: String,
        /// The sequence number.
        sequence: u64,
        /// The error of the reader.
        reason: E,
    },
}

impl ShardLog {
    /// Opens the log of a shard, and creates its stream if it is missing.
    pub async fn open(cluster: &Cluster, shard: u32) -> Result<Self, ClusterError> {
        let name = format!("rolltap-{}-shard-{shard}", cluster.name());
        let subject = format!("rolltap.{}.shard.{shard}", cluster.name());
        let stream = cluster.log_stream(name, subject.clone()).await?;
        Ok(Self {
            cluster: cluster.clone(),
            stream,
            subject,
            last: 0,
            anchor: None,
            order: LogOrder::default(),
        })
    }

    /// Leaves out the messages up to this one, whose content is stored elsewhere. 0 leaves out none.
    #[must_use]
    pub fn after(self, sequence: u64) -> Self {
        match sequence {
            0 => self,
            _ => Self { last: sequence - 1, anchor: Some(sequence), ..self },
        }
    }

    /// Reads the log, and appends the first message of a new writer. `apply` gets each entry with its sequence number, in
    /// order. Returns the sequence number of the first message.
    pub(crate) async fn claim_as<E>(
        &mut self,
        writer: WriterId,
        epoch: u64,
        mut apply: impl FnMut(u64, LogEntry) -> Result<(), E>,
    ) -> Result<u64, LogError<E>> {
        loop {
            self.read(&mut apply).await?;
            let message = LogMessage { writer, number: 0, entry: LogEntry::Epoch(epoch) };
            let Some(sequence) = self.append_first(&message).await? else {
                // An earlier holder appended meanwhile, which it may until this node's first message.
                continue;
            };
            // A server that has just become the leader compares the expected sequence number with what it has applied so far.
            // Messages in between are older than the first message of this writer.
            while self.last + 1 < sequence {
                self.read(&mut apply).await?;
            }
            return Ok(sequence);
        }
    }

    /// Reads what follows the last message that was read, up to the end of the stream.
    async fn read<E>(
        &mut self,
        apply: &mut impl FnMut(u64, LogEntry) -> Result<(), E>,
    ) -> Result<(), LogError<E>> {
        let cluster = self.cluster.clone();
        let cannot = |action: &str, error: &dyn std::fmt::Display| cluster.refused(action, error, "");
        let info = self.stream.get_info().await;
        let state = info.map_err(|error| cannot("read the state of the log", &error))?.state;
        // A stream without messages has a first sequence number behind its last one. A new stream has 0 as both.
        let first = state.first_sequence.max(1);
        // The last message whose content is elsewhere shows which message follows it, but nothing is missing without it.
        if let Some(anchor) = self.anchor.filter(|anchor| *anchor == self.last + 1 && *anchor + 1 == first) {
            self.last = anchor;
        }
        let expected = self.last + 1;
        if first > expected || expected > state.last_sequence + 1 {
            let last = state.last_sequence;
            return Err(LogError::Missing {
                stream: self.name(),
                first: state.first_sequence,
                last,
                expected,
            });
        }
        if expected > state.last_sequence {
            return Ok(());
        }
        let config = OrderedConfig {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: expected },
            replay_policy: ReplayPolicy::Instant,
            ..OrderedConfig::default()
        };
        let consumer = self.stream.create_consumer(config).await;
        let consumer = consumer.map_err(|error| cannot("read the log", &error))?;
        let mut messages = consumer.messages().await.map_err(|error| cannot("read the log", &error))?;
        while self.last < state.last_sequence {
            let next = timeout(PATIENCE, messages.next()).await;
            let silence =
                |_| cannot("read the log", &format!("no message came for {} s", PATIENCE.as_secs()));
            let Some(message) = next.map_err(silence)? else { break };
            let message = message.map_err(|error| self.cluster.refused("read the log", &error, ""))?;
            let info = message.info().map_err(|error| self.cluster.refused("read the log", &error, ""))?;
            let sequence = info.stream_sequence;
            if sequence != self.last + 1 {
                let gap = format!("message {sequence} came after message {}", self.last);
                return Err(cannot("read the log", &gap).into());
            }
            let decoded = LogMessage::decode(message.message.payload);
            let decoded =
                decoded.map_err(|reason| LogError::Foreign { stream: self.name(), sequence, reason })?;
            self.last = sequence;
            if !self.order.admits(&decoded) {
                tracing::warn!(sequence, "a message of the log took a foreign place, and does not count");
                continue;
            }
            if self.anchor == Some(sequence) {
                continue;
            }
            apply(sequence, decoded.entry).map_err(|reason| LogError::Applied {
                stream: self.name(),
                sequence,
                reason,
            })?;
        }
        Ok(())
    }

    /// Appends the first message of a writer. Returns its sequence number, or `None` if another message came before it.
    async fn append_first(&self, message: &LogMessage) -> Result<Option<u64>, ClusterError> {
        let publish = PublishMessage::build().payload(message.encode()).expected_last_sequence(self.last);
        let sent = self.cluster.context().send_publish(self.subject.clone(), publish).await;
        let refused = |error: &dyn std::fmt::Display| self.cluster.refused("append to the log", error, "");
        match sent.map_err(|error| refused(&error))?.await {
            Ok(ack) => Ok(Some(ack.sequence)),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(None),
            Err(error) => Err(refused(&error)),
        }
    }

    fn name(&self) -> String {
        self.stream.cached_info().config.name.clone()
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}
