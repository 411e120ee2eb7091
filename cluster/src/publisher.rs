//! Appends to the log of a shard, for as long as no other node does.
//!
//! Many messages are in flight at once. Each expects the sequence number that follows from the one before it, so they are
//! stored in order or not at all. After an error, the publisher reads the last message of the stream. If that message is its
//! own, everything up to it is stored, and the rest is sent again. If the message is another writer's, this node was fenced.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::context::{PublishAckFuture, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::sync::{mpsc, oneshot, watch};

use crate::log::{LogEntry, LogError, ShardLog};
use crate::message::{LONGEST_HEAD, LogMessage, WriterId};

/// The largest number of messages in flight.
const IN_FLIGHT: usize = 256;
/// The largest payload in bytes, also if the server accepts larger ones. NATS itself recommends less than a megabyte.
const LARGEST: usize = 512 << 10;
/// The bytes of headers that the server counts as payload.
const HEADERS: usize = 256;
/// The pause before a failed message is sent again.
const AGAIN: Duration = Duration::from_millis(250);

/// The state of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replicated {
    /// The messages up to this number are stored on all replicas that NATS requires.
    Through(u64),
    /// The messages up to this number are stored. The following ones are sent again until they are.
    Failing {
        /// The number.
        through: u64,
        /// The error.
        reason: String,
    },
    /// Another node appends to the log. Nothing more is stored. This state is final.
    Fenced {
        /// The number of the last message that is stored.
        through: u64,
    },
}

impl Replicated {
    /// The number of the last message that is stored.
    pub fn through(&self) -> u64 {
        match self {
            Self::Through(number) => *number,
            Self::Failing { through, .. } | Self::Fenced { through } => *through,
        }
    }
}

/// The right to append to a log.
#[derive(Debug)]
pub struct Publisher {
    queue: mpsc::UnboundedSender<Queued>,
    writer: WriterId,
    /// The number of the latest message.
    number: u64,
    largest: usize,
    state: watch::Receiver<Replicated>,
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
    /// Removes the messages up to this sequence number. Their content is stored elsewhere.
    ///
    /// # Errors
    /// Fails with the reason if NATS does not do it.
    pub async fn trim(&self, through: u64) -> Result<(), String> {
        let purged = self.stream.purge().sequence(through + 1).await;
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
        let (state, states) = watch::channel(Replicated::Through(0));
        let sending = Sending {
            log,
            writer,
            stored: Stored { number: 0, sequence },
            unstored: VecDeque::new(),
            marks: VecDeque::new(),
            in_flight: FuturesOrdered::new(),
            state,
        };
        tokio::spawn(sending.run(queued));
        Self { queue, writer, number: 0, largest, state: states, trimmer }
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

    /// Follows the state of the log.
    pub fn state(&self) -> watch::Receiver<Replicated> {
        self.state.clone()
    }

    fn send(&mut self, entry: LogEntry) {
        self.number += 1;
        let message = LogMessage { writer: self.writer, number: self.number, entry };
        // The task ends only when the log is fenced, and then nothing more can be stored.
        let _ = self.queue.send(Queued::Message(self.number, message.encode()));
    }
}

/// The last message that is known to be stored.
#[derive(Clone, Copy, Debug)]
struct Stored {
    number: u64,
    sequence: u64,
}

/// The task that sends messages.
struct Sending {
    log: ShardLog,
    writer: WriterId,
    stored: Stored,
    /// The messages after `stored`, in order. The first ones are in flight.
    unstored: VecDeque<(u64, Bytes)>,
    /// The numbers whose sequence numbers are asked for, in order.
    marks: VecDeque<(u64, oneshot::Sender<u64>)>,
    in_flight: FuturesOrdered<<PublishAckFuture as IntoFuture>::IntoFuture>,
    state: watch::Sender<Replicated>,
}

/// The error of a message that could not be published, and its text.
type Failure = (PublishErrorKind, String);

/// The log was fenced by another writer.
struct Fenced;

impl Sending {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Queued>) {
        let mut is_over = false;
        while !is_over || !self.unstored.is_empty() {
            let outcome = tokio::select! {
                biased;
                Some(acknowledged) = self.in_flight.next() => match acknowledged {
                    Ok(ack) => {
                        self.is_stored(ack.sequence);
                        Ok(())
                    }
                    Err(error) => Err((error.kind(), error.to_string())),
                },
                queued = queue.recv(), if !is_over && self.in_flight.len() < IN_FLIGHT => {
                    match queued {
                        Some(Queued::Message(number, message)) => self.unstored.push_back((number, message)),
                        Some(Queued::Mark(mark)) => self.mark(mark),
                        None => is_over = true,
                    }
                    Ok(())
                }
            };
            let outcome = match outcome {
                Ok(()) => self.send_unsent().await,
                failed => failed,
            };
            if let Err((kind, reason)) = outcome
                && self.recover(kind, reason).await.is_err()
            {
                tracing::error!(
                    "another node appends to the log of this shard: this one may write nothing more"
                );
                let through = self.stored.number;
                self.state.send_replace(Replicated::Fenced { through });
                return;
            }
        }
    }

    /// The first message in flight is stored.
    fn is_stored(&mut self, sequence: u64) {
        if let Some((number, _)) = self.unstored.pop_front() {
            self.stored = Stored { number, sequence };
            self.state.send_replace(Replicated::Through(number));
            self.answer_marks(self.stored);
        }
    }

    fn mark(&mut self, mark: oneshot::Sender<u64>) {
        let number = self.unstored.back().map_or(self.stored.number, |(number, _)| *number);
        self.marks.push_back((number, mark));
        self.answer_marks(self.stored);
    }

    /// Answers the marks up to the stored message. `exact` is the last message whose sequence number is certain: after an
    /// error, those of the messages before the last one are not known.
    fn answer_marks(&mut self, exact: Stored) {
        while let Some((number, mark)) = self.marks.pop_front_if(|(number, _)| *number <= self.stored.number)
        {
            let known = if number == self.stored.number { self.stored } else { exact };
            // The asker may be gone.
            let _ = mark.send(known.sequence);
        }
    }

    /// Sends the messages that are not in flight, as far as there is room.
    async fn send_unsent(&mut self) -> Result<(), Failure> {
        while self.in_flight.len() < IN_FLIGHT
            && let Some((_, message)) = self.unstored.get(self.in_flight.len())
        {
            let expected = self.stored.sequence + self.in_flight.len() as u64;
            let publish = PublishMessage::build().payload(message.clone()).expected_last_sequence(expected);
            let sent = self.log.cluster().context().send_publish(self.log.subject.clone(), publish).await;
            let acknowledgement = sent.map_err(|error| (error.kind(), error.to_string()))?;
            self.in_flight.push_back(acknowledgement.into_future());
        }
        Ok(())
    }

    /// Finds out which messages are stored, and sends the others again, until that succeeds.
    async fn recover(&mut self, kind: PublishErrorKind, reason: String) -> Result<(), Fenced> {
        let mut reason = reason;
        // A rejected sequence often means that this node was fenced, so the stream is read at once.
        let mut is_first = kind == PublishErrorKind::WrongLastSequence;
        loop {
            self.in_flight.clear();
            let through = self.stored.number;
            if !std::mem::take(&mut is_first) {
                self.state.send_replace(Replicated::Failing { through, reason: reason.clone() });
                tokio::time::sleep(AGAIN).await;
            }
            let resumed = match last_stored(&self.log, self.writer, self.stored).await {
                Ok(found) => {
                    self.resume(found?);
                    self.send_unsent().await.map_err(|(_, reason)| reason)
                }
                Err(unread) => Err(unread),
            };
            match resumed {
                Ok(()) => return Ok(()),
                Err(again) => reason = again,
            }
        }
    }

    fn resume(&mut self, found: Stored) {
        while self.unstored.front().is_some_and(|(number, _)| *number <= found.number) {
            self.unstored.pop_front();
        }
        let before = std::mem::replace(&mut self.stored, found);
        self.state.send_replace(Replicated::Through(found.number));
        self.answer_marks(before);
    }
}

/// Reads the last message of the stream. Fails with the reason if that is impossible at present.
async fn last_stored(
    log: &ShardLog,
    writer: WriterId,
    known: Stored,
) -> Result<Result<Stored, Fenced>, String> {
    let info = log.stream.get_info().await.map_err(|error| error.to_string())?;
    let sequence = info.state.last_sequence;
    if sequence == known.sequence {
        return Ok(Ok(known));
    }
    let last = log.stream.get_raw_message(sequence).await.map_err(|error| error.to_string())?;
    Ok(match LogMessage::decode(last.payload) {
        Ok(message) if message.writer == writer => Ok(Stored { number: message.number, sequence }),
        _ => Err(Fenced),
    })
}
