//! A streaming answer: reads it from upstream, splits it into events, records them, and rewrites them for the agent.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use crate::dialect::{ResponseAdapter, StreamProgress};
use crate::recorder::Recorder;
use crate::store::StoreError;
use crate::trial::call::CallEnded;
use crate::upstream::{AnswerError, UpstreamBody};
use crate::wire::chunk_edit::ChunkRewriter;
use crate::wire::sse::{Decoder, EventTooLong};

/// The upstream's stream and the state of its decoding. When it is dropped, upstream stops.
#[derive(Debug)]
pub(crate) struct Streaming {
    upstream: UpstreamBody,
    decoder: Decoder,
    back: ResponseAdapter,
    /// The end of the stream for the agent, after the events that arrived with it.
    last: Option<Bytes>,
}

/// The result of one read from upstream.
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    /// No event is complete yet, or no event is for the agent.
    Nothing,
    Events(Bytes),
    Last(Bytes),
}

/// The reason why a stream breaks off. The agent's client sees a broken connection, as if the upstream itself had
/// broken off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    CallEnded(#[from] CallEnded),
    #[error("upstream broke off: {0}")]
    Upstream(#[from] AnswerError),
    #[error("upstream ended its stream without an end: {0}")]
    Unfinished(&'static str),
    #[error("upstream sent nothing for {0:?}")]
    Silent(Duration),
    #[error(transparent)]
    Event(#[from] EventTooLong),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Streaming {
    pub(crate) fn new(upstream: UpstreamBody, back: ResponseAdapter) -> Self {
        Self { upstream, decoder: Decoder::default(), back, last: None }
    }

    /// Returns the bytes that keep the agent's connection open while upstream is silent.
    pub(crate) fn keep_alive(&self) -> &'static [u8] {
        self.back.keep_alive()
    }

    /// Reads once, and records the data.
    pub(crate) fn poll_step(
        &mut self,
        recorder: &mut Recorder,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReadOutcome, Broken>> {
        if let Some(last) = self.last.take() {
            return Poll::Ready(Ok(ReadOutcome::Last(last)));
        }
        let Some(data) = ready!(self.upstream.poll_data(cx)) else {
            let is_between_events = self.decoder.rest().is_empty();
            let reason = if is_between_events { "no [DONE] came" } else { "it broke off in an event" };
            return Poll::Ready(Err(Broken::Unfinished(reason)));
        };
        Poll::Ready(self.take(data?, recorder))
    }

    /// Decodes bytes from upstream. Records the complete events, and returns them in the agent's form.
    fn take(&mut self, bytes: Bytes, recorder: &mut Recorder) -> Result<ReadOutcome, Broken> {
        let arrived = self.decoder.take(bytes)?;
        let mut passing = ChunkRewriter::of(arrived.bytes.clone());
        for event in arrived.events {
            let before = passing.length();
            if self.back.event(&arrived.bytes, event, recorder, &mut passing) == StreamProgress::Last {
                self.upstream.needs_no_more();
                let mut events = passing.into_bytes();
                let last = events.split_off(before);
                if events.is_empty() {
                    return Ok(ReadOutcome::Last(last));
                }
                // The last event waits for the record. The events that arrived with it do not.
                self.last = Some(last);
                return Ok(ReadOutcome::Events(events));
            }
        }
        let events = passing.into_bytes();
        Ok(if events.is_empty() { ReadOutcome::Nothing } else { ReadOutcome::Events(events) })
    }
}
