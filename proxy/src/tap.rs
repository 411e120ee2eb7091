//! The streaming answer as it passes: each event is recorded, cleaned of what only we asked for, and handed on at once.
//!
//! No task and no queue stand between upstream and agent: the agent's connection polls this body, this body polls
//! upstream. The last event waits until the call's record is kept, because agents take it for the end of the turn.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use rolltap_rollout::call::CallStatus;

use crate::call_under_way::{CallGuard, Ended};
use crate::dialect::chat::answer::{self, Asked, Fate};
use crate::sse::{Decoder, Event, EventTooLong, write_event};
use crate::store::{self, Kept, StoreError};

/// The body that the agent reads.
#[derive(Debug)]
pub(crate) struct TapBody {
    call: CallGuard,
    asked: Asked,
    decoder: Decoder,
    end: End,
}

/// How far the answer is from its end.
#[derive(Debug)]
enum End {
    /// More is to come.
    Ahead,
    /// The last events wait for the record to be kept.
    Held { kept: Kept, events: Bytes },
    /// Everything was handed on.
    Reached,
}

/// Why a stream breaks off. The agent's client sees what it would see of an upstream that breaks off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Ended(#[from] Ended),
    #[error("upstream broke off: {0}")]
    Upstream(#[from] hyper::Error),
    #[error("upstream ended its stream without an end: {0}")]
    Unfinished(&'static str),
    #[error(transparent)]
    Event(#[from] EventTooLong),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TapBody {
    pub(crate) fn new(call: CallGuard, asked: Asked) -> Self {
        Self { call, asked, decoder: Decoder::default(), end: End::Ahead }
    }

    /// Takes what upstream sent, and hands on what of it is whole events; none where nothing is left of it, or where it
    /// is held.
    fn take(&mut self, bytes: &[u8]) -> Result<Option<Bytes>, Broken> {
        self.decoder.push(bytes)?;
        let mut out = Vec::with_capacity(bytes.len());
        while let Some(event) = self.decoder.next_event() {
            match self.fate_of(&event)? {
                Fate::AsIs => out.extend_from_slice(event.bytes()),
                Fate::Edited(data) => write_event(&data, &mut out),
                Fate::Dropped => {}
                Fate::Last => {
                    self.hold(&event, out);
                    return Ok(None);
                }
            }
        }
        Ok((!out.is_empty()).then(|| out.into()))
    }

    fn fate_of(&self, event: &Event) -> Result<Fate, Ended> {
        let asked = self.asked;
        self.call.0.record(|recorder| match event.data() {
            Some(data) => answer::event(&data, asked, recorder),
            None => Fate::AsIs,
        })
    }

    /// Ends the call. What stands before the last event is handed on with it: it came in the same read.
    fn hold(&mut self, last: &Event, mut out: Vec<u8>) {
        out.extend_from_slice(last.bytes());
        out.extend_from_slice(&self.decoder.rest());
        if let Some(kept) = self.call.0.end(CallStatus::Complete, None) {
            self.end = End::Held { kept, events: out.into() };
        }
    }

    /// Upstream closed its stream: well if the last event was seen.
    fn upstream_closed(&mut self) -> Broken {
        let reason =
            if self.decoder.rest().is_empty() { "no [DONE] came" } else { "it broke off in an event" };
        self.fail(Broken::Unfinished(reason))
    }

    fn fail(&mut self, broken: Broken) -> Broken {
        drop(self.call.0.end(CallStatus::Failed, Some(broken.to_string())));
        self.end = End::Reached;
        broken
    }
}

impl Body for TapBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        loop {
            match &mut this.end {
                End::Reached => return Poll::Ready(None),
                End::Held { kept, events } => {
                    let kept = store::outcome(ready!(Pin::new(kept).poll(cx)));
                    let events = std::mem::take(events);
                    this.end = End::Reached;
                    return Poll::Ready(Some(kept.map(|()| Frame::data(events)).map_err(Broken::from)));
                }
                End::Ahead => {}
            }
            let frame = match ready!(this.call.0.poll_answer(cx)) {
                Err(ended) => return Poll::Ready(Some(Err(this.fail(ended.into())))),
                Ok(None) => return Poll::Ready(Some(Err(this.upstream_closed()))),
                Ok(Some(Err(error))) => return Poll::Ready(Some(Err(this.fail(error.into())))),
                Ok(Some(Ok(frame))) => frame,
            };
            // Trailers say nothing that vLLM sends.
            let Some(bytes) = frame.data_ref() else { continue };
            match this.take(bytes) {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Ok(None) => {}
                Err(broken) => return Poll::Ready(Some(Err(this.fail(broken)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, End::Reached)
    }
}
