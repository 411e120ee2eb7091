//! The streaming answer as the agent reads it.
//!
//! There is no task and no queue between upstream and agent: the agent's connection polls this body, and this body
//! polls upstream. The last event waits until the call's record is durable, because agents take that event for the end
//! of the turn.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::trial::call::{CallGuard, Next, SharedDurable};
use crate::trial::keep_alive::{IdleTimer, UpstreamSign};
use crate::trial::stream::Broken;

/// The body that the agent reads.
#[derive(Debug)]
pub(crate) struct TapBody {
    guard: CallGuard,
    silence: IdleTimer,
    end: End,
}

/// A complete answer in one piece, whose record is durable.
#[derive(Debug)]
pub(crate) struct WholeBody {
    guard: CallGuard,
    /// `None` after the connection took the body.
    body: Option<Bytes>,
}

/// The progress of the answer towards its end.
#[derive(Debug)]
enum End {
    /// More events follow.
    Ahead,
    /// The last events wait until the record is durable.
    Held { kept: SharedDurable, events: Bytes },
    /// The stream broke off, and the agent's connection gets the error with the next poll.
    Broken(Broken),
    /// All events were passed on, or the error.
    Reached,
}

impl TapBody {
    pub(crate) fn new(guard: CallGuard, silence: IdleTimer) -> Self {
        Self { guard, silence, end: End::Ahead }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Broken>> {
        loop {
            match &mut self.end {
                End::Held { kept, events } => {
                    let kept = ready!(Pin::new(kept).poll(cx));
                    let events = std::mem::take(events);
                    self.end = End::Reached;
                    match &kept {
                        // If the record cannot be stored, the agent gets an error in place of the last events.
                        Ok(()) => self.guard.delivered(),
                        Err(_) => self.guard.call().answer_is_replaced(),
                    }
                    return Poll::Ready(kept.map(|()| events).map_err(Broken::from));
                }
                End::Ahead | End::Broken(_) | End::Reached => {}
            }
            match self.guard.poll_next(cx) {
                Poll::Ready(next) => {
                    self.silence.broken();
                    match next? {
                        Next::Events(events) => return Poll::Ready(Ok(events)),
                        Next::Last { events, kept } => self.end = End::Held { kept, events },
                    }
                }
                Poll::Pending => return self.poll_silence(cx),
            }
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Broken>> {
        match ready!(self.silence.poll(cx)) {
            UpstreamSign::NothingYet => Poll::Ready(Ok(Bytes::from_static(self.guard.call().keep_alive()))),
            UpstreamSign::NothingForTooLong(time) => {
                Poll::Ready(Err(self.guard.give_up(Broken::Silent(time))))
            }
        }
    }
}

impl Body for TapBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if matches!(self.end, End::Broken(_) | End::Reached) {
            return Poll::Ready(match std::mem::replace(&mut self.end, End::Reached) {
                End::Broken(broken) => Some(Err(broken)),
                _ => None,
            });
        }
        match ready!(self.poll_more(cx)) {
            Ok(events) => Poll::Ready(Some(Ok(Frame::data(events)))),
            Err(broken) => {
                // hyper closes the connection at an error, and discards events that it has not written. It writes them
                // if this poll is pending.
                self.end = End::Broken(broken);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, End::Reached)
    }
}

impl WholeBody {
    pub(crate) fn new(guard: CallGuard, body: Bytes) -> Self {
        Self { guard, body: Some(body) }
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(body) = self.body.take() else { return Poll::Ready(None) };
        self.guard.delivered();
        Poll::Ready(Some(Ok(Frame::data(body))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.as_ref().map_or(0, |body| body.len() as u64))
    }
}
