//! A call between its admission and its record. Whoever ends it first writes the record: the answer's end, an error,
//! the agent that leaves, or the trial that is sealed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use rolltap_rollout::call::CallStatus;

use crate::recorder::Recorder;
use crate::store::{Event, Kept, Place};
use crate::trial::Trial;

/// Shared by the agent's connection and the trial, so that sealing needs nobody's help: a client that has stopped
/// reading cannot hold its call open.
#[derive(Debug)]
pub(crate) struct CallUnderWay {
    trial: Arc<Trial>,
    live: Mutex<Option<Live>>,
}

#[derive(Debug)]
struct Live {
    recorder: Recorder,
    place: Place,
    /// The answer as it streams; dropping it makes upstream stop.
    answer: Option<Incoming>,
    /// The connection that waits for more of the answer.
    waiting: Option<Waker>,
}

/// The next frame of an answer; none at its end.
pub(crate) type AnswerFrame = Option<Result<Frame<Bytes>, hyper::Error>>;

/// The call has been ended by somebody else.
#[derive(Debug, thiserror::Error)]
#[error("the call was ended: its trial is sealed")]
pub(crate) struct Ended;

impl CallUnderWay {
    pub(crate) fn new(trial: Arc<Trial>, recorder: Recorder, place: Place) -> Self {
        Self { trial, live: Mutex::new(Some(Live { recorder, place, answer: None, waiting: None })) }
    }

    pub(crate) fn trial(&self) -> &Trial {
        &self.trial
    }

    /// Adds to the record.
    pub(crate) fn record<T>(&self, add: impl FnOnce(&mut Recorder) -> T) -> Result<T, Ended> {
        self.lock().as_mut().map(|live| add(&mut live.recorder)).ok_or(Ended)
    }

    /// Takes charge of the streaming answer.
    pub(crate) fn stream(&self, answer: Incoming) -> Result<(), Ended> {
        self.lock().as_mut().map(|live| live.answer = Some(answer)).ok_or(Ended)
    }

    /// The next frame of the streaming answer.
    pub(crate) fn poll_answer(&self, cx: &mut Context<'_>) -> Poll<Result<AnswerFrame, Ended>> {
        let mut live = self.lock();
        let Some(live) = live.as_mut() else { return Poll::Ready(Err(Ended)) };
        let Some(answer) = live.answer.as_mut() else { return Poll::Ready(Ok(None)) };
        match std::pin::Pin::new(answer).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => {
                // Sealing drops the answer, which then wakes nobody: `end` does.
                match &mut live.waiting {
                    Some(waker) => waker.clone_from(cx.waker()),
                    waiting => *waiting = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    /// Ends the call and hands its record to the trial and the store. None if it had ended already.
    pub(crate) fn end(&self, status: CallStatus, error: Option<String>) -> Option<Kept> {
        // Held to the end, so that whoever finds the call ended finds its record in the trial too.
        let mut slot = self.lock();
        let live = slot.take()?;
        let call = Arc::new(live.recorder.finish(status, error));
        self.trial.call_ended(Arc::clone(&call));
        let kept = live.place.keep(Event::Call(call));
        drop(slot);
        if let Some(waiting) = live.waiting {
            waiting.wake();
        }
        Some(kept)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a call for the agent's connection: when that goes away before the call has ended, the call is cancelled, and
/// upstream with it.
#[derive(Debug)]
pub(crate) struct CallGuard(pub(crate) Arc<CallUnderWay>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        // Nobody waits for the record any more; it is kept all the same.
        drop(
            self.0.end(CallStatus::Cancelled, Some("the agent left before the answer was whole".to_owned())),
        );
    }
}
