//! The task that sends the messages of a publisher.
//!
//! Many messages are in flight at once. Each expects the sequence number that follows from the one before it. After an error,
//! the publisher reads the messages after the last one that is known to be stored, and sends those again that do not count
//! ([`LogOrder`]). If another writer has begun, this node was fenced.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use bytes::Bytes;
use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};

use super::{LogCondition, Queued};
use crate::log::ShardLog;
use crate::message::{LogMessage, LogOrder, WriterId};

/// The largest number of messages in flight.
const IN_FLIGHT: usize = 256;

/// The pause before a failed message is sent again.
const AGAIN: Duration = Duration::from_millis(250);

/// The last message that is known to be stored and counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) number: u64,
    /// Its sequence number.
    pub(super) counted: u64,
    /// The sequence number of the last message of the stream. It is higher if that one does not count.
    pub(super) last: u64,
}

/// The task that sends messages.
pub(super) struct Sending {
    log: ShardLog,
    writer: WriterId,
    stored: Stored,
    /// The messages after `stored`, in order. The first ones are in flight.
    unstored: VecDeque<(u64, Bytes)>,
    /// The numbers whose sequence numbers are asked for, in order.
    marks: VecDeque<(u64, oneshot::Sender<u64>)>,
    in_flight: FuturesOrdered<<PublishAckFuture as IntoFuture>::IntoFuture>,
    /// The number of the last message that is stored.
    through: watch::Sender<u64>,
    condition: watch::Sender<LogCondition>,
}

/// The acknowledgement of a message.
type Acknowledged = Result<PublishAck, PublishError>;

/// The error of a message that could not be published, and its text.
type Failure = (PublishErrorKind, String);

/// The log was fenced by another writer.
struct Fenced;

impl Sending {
    /// Returns the task of a writer whose first message is stored, the number of the last stored message, and the condition.
    pub(super) fn new(
        log: ShardLog,
        writer: WriterId,
        stored: Stored,
    ) -> (Self, watch::Receiver<u64>, watch::Receiver<LogCondition>) {
        let (through, numbers) = watch::channel(stored.number);
        let (condition, conditions) = watch::channel(LogCondition::Well);
        let sending = Self {
            log,
            writer,
            stored,
            unstored: VecDeque::new(),
            marks: VecDeque::new(),
            in_flight: FuturesOrdered::new(),
            through,
            condition,
        };
        (sending, numbers, conditions)
    }

    /// Sends what comes from the queue, until the publisher is dropped and everything is stored, or the log is fenced.
    pub(super) async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Queued>) {
        let mut is_over = false;
        while !is_over || !self.unstored.is_empty() {
            let outcome = tokio::select! {
                biased;
                Some(acknowledged) = self.in_flight.next() => self.are_stored(acknowledged),
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
                self.condition.send_replace(LogCondition::Fenced);
                return;
            }
        }
    }

    /// Counts an acknowledgement, and those that have come after it. All of them wake the waiters once.
    fn are_stored(&mut self, first: Acknowledged) -> Result<(), Failure> {
        let mut next = Some(first);
        let mut outcome = Ok(());
        while let Some(acknowledged) = next.filter(|_| outcome.is_ok()) {
            outcome = match acknowledged {
                Ok(ack) => self.is_stored(ack.sequence),
                Err(error) => Err((error.kind(), error.to_string())),
            };
            next = self.in_flight.next().now_or_never().flatten();
        }
        self.through.send_replace(self.stored.number);
        outcome
    }

    /// The first message in flight is stored. Fails if the message did not follow the one before it.
    fn is_stored(&mut self, sequence: u64) -> Result<(), Failure> {
        let expected = self.stored.last + 1;
        if sequence != expected {
            let reason = format!("a message is stored as number {sequence} and not as number {expected}");
            return Err((PublishErrorKind::WrongLastSequence, reason));
        }
        if let Some((number, _)) = self.unstored.pop_front() {
            self.stored = Stored { number, counted: sequence, last: sequence };
            self.answer_marks(self.stored);
        }
        Ok(())
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
            let _ = mark.send(known.counted);
        }
    }

    /// Sends the messages that are not in flight, as far as there is room.
    async fn send_unsent(&mut self) -> Result<(), Failure> {
        while self.in_flight.len() < IN_FLIGHT
            && let Some((_, message)) = self.unstored.get(self.in_flight.len())
        {
            let expected = self.stored.last + self.in_flight.len() as u64;
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
            if !std::mem::take(&mut is_first) {
                self.condition.send_replace(LogCondition::Failing(reason.clone()));
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
        // The condition comes first: who sees a message stored must not see an older failure.
        self.condition.send_replace(LogCondition::Well);
        self.through.send_replace(found.number);
        self.answer_marks(before);
    }
}

/// Reads the messages after the last one that is known. Fails with the reason if that is impossible at present.
async fn last_stored(
    log: &ShardLog,
    writer: WriterId,
    known: Stored,
) -> Result<Result<Stored, Fenced>, String> {
    let info = log.stream.get_info().await.map_err(|error| error.to_string())?;
    let last = info.state.last_sequence;
    if last < known.last {
        // A server that was paused, or that has just become the leader, has not seen the latest messages.
        let before = known.last;
        return Err(format!(
            "the stream has {last} messages, and {before} were stored: a server of NATS is behind"
        ));
    }
    let mut order = LogOrder::after(writer, known.number);
    let mut counted = known.counted;
    for sequence in known.last + 1..=last {
        let stored = log.stream.get_raw_message(sequence).await.map_err(|error| error.to_string())?;
        match LogMessage::decode(stored.payload) {
            Ok(message) if message.number == 0 => return Ok(Err(Fenced)),
            Ok(message) if order.admits(&message) => counted = sequence,
            Ok(_) => {}
            // Another program writes to the stream.
            Err(_) => return Ok(Err(Fenced)),
        }
    }
    Ok(Ok(Stored { number: order.number(), counted, last }))
}
