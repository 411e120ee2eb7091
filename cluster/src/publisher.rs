//! Appends to the log of a shard, for as long as no other node does ([`sending`]).

mod sending;

use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use self::sending::{Sending, Stored};
use crate::log::{LogEntry, LogError, ShardLog};
use crate::message::{LONGEST_HEAD, LogMessage, WriterId};

/// The largest payload in bytes, also if the server accepts larger ones. NATS itself recommends less than a megabyte.
const LARGEST: usize = 512 << 10;
/// The bytes of headers that the server counts as payload.
const HEADERS: usize = 256;

/// Whether the log can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogCondition {
    /// Messages are stored.
    Well,
    /// The messages that are not stored are sent again until they are. The text is the latest error.
    Failing(String),
    /// Another node appends to the log. Nothing more is stored. This condition is final.
    Fenced,
}

/// The right to append to a log.
#[derive(Debug)]
pub struct Publisher {
    queue: mpsc::UnboundedSender<Queued>,
    writer: WriterId,
    /// The number of the latest message.
    number: u64,
    largest: usize,
    stored: watch::Receiver<u64>,
    condition: watch::Receiver<LogCondition>,
    trimmer: Trimmer,
}

/// An entry of the publisher's queue.
#[derive(Debug)]
enum Queued {
    /// A message and its number.
    Message(u64, Bytes),
    /// Asks for the sequence number of the message before it.
    Mark(oneshot::Sender<u64>),
}

/// Removes messages from the beginning of a log.
#[derive(Clone, Debug)]
pub struct Trimmer {
    stream: Stream,
}

impl Trimmer {
    /// Removes the messages before this sequence number. Their content is stored elsewhere, as is that of the message with this
    /// number, which stays to show what follows it.
    ///
    /// # Errors
    /// Fails with the reason if NATS does not do it.
    pub async fn trim(&self, through: u64) -> Result<(), String> {
        let purged = self.stream.purge().sequence(through).await;
        purged.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Publisher {
    /// Reads the log of a shard, and becomes its only writer. `apply` gets each entry with its sequence number, in order.
    ///
    /// # Errors
    /// Fails if NATS does not answer, if a message has another format, and with the first error of `apply`.
    pub async fn claim<E>(
        mut log: ShardLog,
        epoch: u64,
        apply: impl FnMut(u64, LogEntry) -> Result<(), E>,
    ) -> Result<Self, LogError<E>> {
        let writer = WriterId::new();
        let sequence = log.claim_as(writer, epoch, apply).await?;
        Ok(Self::start(log, writer, sequence))
    }

    /// Starts to publish. The message of the epoch has number 0 and this sequence number.
    fn start(log: ShardLog, writer: WriterId, sequence: u64) -> Self {
        let largest = log.cluster().max_payload().min(LARGEST).saturating_sub(LONGEST_HEAD + HEADERS).max(1);
        let trimmer = Trimmer { stream: log.stream.clone() };
        let (queue, queued) = mpsc::unbounded_channel();
        let cluster = log.cluster().clone();
        let first = Stored { number: 0, counted: sequence, last: sequence };
        let (sending, stored, condition) = Sending::new(log, writer, first);
        cluster.spawn(sending.run(queued));
        Self { queue, writer, number: 0, largest, stored, condition, trimmer }
    }

    /// Appends bytes to a segment, without waiting. Returns the number with which they are stored.
    ///
    /// The queue has no bound of its own: its user has few unacknowledged writes.
    pub fn append(&mut self, segment: u32, offset: u64, bytes: &[u8]) -> u64 {
        let mut offset = offset;
        for part in bytes.chunks(self.largest) {
            let length = part.len() as u64;
            self.send(LogEntry::Append { segment, offset, bytes: Bytes::copy_from_slice(part) });
            offset += length;
        }
        self.number
    }

    /// Removes a segment, without waiting.
    pub fn remove(&mut self, segment: u32) {
        self.send(LogEntry::Remove { segment });
    }

    /// Resolves once every message so far is stored. The number is the sequence number of the last of them, or a lower one,
    /// so the log has no later message up to it. Fails if the log is fenced before.
    pub fn mark(&self) -> oneshot::Receiver<u64> {
        let (mark, sequence) = oneshot::channel();
        // The task ends only when the log is fenced.
        let _ = self.queue.send(Queued::Mark(mark));
        sequence
    }

    /// Returns the means to remove what is stored elsewhere.
    pub fn trimmer(&self) -> Trimmer {
        self.trimmer.clone()
    }

    /// The number of the latest message. The message of the epoch has number 0.
    pub fn latest(&self) -> u64 {
        self.number
    }

    /// Follows the number of the last message that is stored on all replicas that NATS requires.
    pub fn stored(&self) -> watch::Receiver<u64> {
        self.stored.clone()
    }

    /// Follows the condition of the log.
    pub fn condition(&self) -> watch::Receiver<LogCondition> {
        self.condition.clone()
    }

    fn send(&mut self, entry: LogEntry) {
        self.number += 1;
        let message = LogMessage { writer: self.writer, number: self.number, entry };
        // The task ends only when the log is fenced, and then nothing more can be stored.
        let _ = self.queue.send(Queued::Message(self.number, message.encode()));
    }
}
