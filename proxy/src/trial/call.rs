//! A call between its admission and its record. Whoever ends it first writes the record: the answer's end, an error,
//! the agent that leaves, or the trial that is sealed.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Shared;
use http::response;
use rolltap_rollout::call::{Call, CallStatus};

use crate::dialect::ResponseAdapter;
use crate::recorder::Recorder;
use crate::store::{self, CallEntry, Durable, QueueSlot, StoreError};
use crate::trial::Trial;
use crate::trial::replay::{Replay, ReplayHead};
use crate::trial::retry::Fingerprint;
use crate::trial::stream::{Broken, ReadOutcome, Streaming};
use crate::upstream::UpstreamBody;

/// Shared by the agent's connection and the trial, so that sealing needs nobody's help: a client that has stopped
/// reading cannot hold its call open.
#[derive(Debug)]
pub(crate) struct InFlightCall {
    trial: Arc<Trial>,
    /// Which of the trial's calls, from 0.
    ordinal: u64,
    /// What a retry of it has; none where its client marks no retries.
    fingerprint: Option<Fingerprint>,
    state: Mutex<CallState>,
}

#[derive(Debug)]
struct CallState {
    /// None once the call has ended.
    live: Option<Live>,
    /// The answer, as long as its end is not handed over. None where the client marks no retries.
    undelivered: Option<Replay>,
    /// What the call came to; empty until it has ended.
    records: Vec<Arc<Call>>,
}

#[derive(Debug)]
struct Live {
    recorder: Recorder,
    /// Resolves once it is kept that the call goes upstream; taken by who sends it there.
    intent: Option<Durable>,
    place: QueueSlot,
    /// The answer as it streams; dropping it makes upstream stop.
    stream: Option<Streaming>,
    /// The connection that waits for more of the answer.
    waiting: Option<Waker>,
}

/// What comes next of a streaming answer.
#[derive(Debug)]
pub(crate) enum Next {
    /// Events for the agent.
    Events(Bytes),
    /// The last events: they wait until the record is kept.
    Last { events: Bytes, kept: SharedKept },
}

/// Resolves once the call's record is kept. The connection that hands on the answer's end waits for it, and so does that of
/// a retry.
#[derive(Clone, Debug)]
pub(crate) struct SharedKept(Shared<Durable>);

/// The call has been ended by somebody else.
#[derive(Debug, thiserror::Error)]
#[error("the call was ended: its trial is sealed")]
pub(crate) struct CallEnded;

impl InFlightCall {
    pub(crate) fn new(
        trial: Arc<Trial>,
        ordinal: u64,
        fingerprint: Option<Fingerprint>,
        recorder: Recorder,
        intent: Durable,
        place: QueueSlot,
    ) -> Self {
        let live = Live { recorder, intent: Some(intent), place, stream: None, waiting: None };
        let state = Mutex::new(CallState { live: Some(live), undelivered: None, records: Vec::new() });
        Self { trial, ordinal, fingerprint, state }
    }

    pub(crate) fn trial(&self) -> &Trial {
        &self.trial
    }

    pub(crate) fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Adds to the record.
    pub(crate) fn record<T>(&self, add: impl FnOnce(&mut Recorder) -> T) -> Result<T, CallEnded> {
        self.lock().live.as_mut().map(|live| add(&mut live.recorder)).ok_or(CallEnded)
    }

    /// Returns once it is kept that the call goes upstream: whatever becomes of this process, the call is known.
    pub(crate) async fn is_intended(&self) -> Result<Result<(), StoreError>, CallEnded> {
        let intent = self.lock().live.as_mut().ok_or(CallEnded)?.intent.take();
        Ok(match intent {
            Some(intent) => store::outcome(intent.await),
            None => Ok(()),
        })
    }

    /// The answer begins: it is kept from now on where its client marks retries.
    pub(crate) fn answer_begins(&self, head: &response::Parts) {
        if self.fingerprint.is_some() {
            let head = ReplayHead { status: head.status, headers: head.headers.clone() };
            self.lock().undelivered = Some(Replay { head, pieces: Vec::new(), kept: None });
        }
    }

    /// Takes charge of the streaming answer.
    pub(crate) fn stream(&self, upstream: UpstreamBody, back: ResponseAdapter) -> Result<(), CallEnded> {
        let mut state = self.lock();
        let live = state.live.as_mut().ok_or(CallEnded)?;
        live.stream = Some(Streaming::new(upstream, back));
        Ok(())
    }

    /// The next events of the streaming answer, for the connection that reads it.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Next, Broken>> {
        let mut state = self.lock();
        let Some(live) = state.live.as_mut() else { return Poll::Ready(Err(CallEnded.into())) };
        loop {
            let stepped = match ready!(live.poll_step(cx)) {
                Ok(stepped) => stepped,
                Err(broken) => {
                    let error = Some(broken.to_string());
                    drop(self.end_locked(&mut state, CallStatus::Failed, error));
                    return Poll::Ready(Err(broken));
                }
            };
            match stepped {
                ReadOutcome::Nothing => {}
                ReadOutcome::Events(events) => {
                    state.undelivered.iter_mut().for_each(|answer| answer.pieces.push(events.clone()));
                    return Poll::Ready(Ok(Next::Events(events)));
                }
                ReadOutcome::Last(events) => {
                    state.undelivered.iter_mut().for_each(|answer| answer.pieces.push(events.clone()));
                    let ended = self.end_locked(&mut state, CallStatus::Complete, None);
                    return Poll::Ready(
                        ended.map(|kept| Next::Last { events, kept }).ok_or(CallEnded.into()),
                    );
                }
            }
        }
    }

    /// What keeps a silent stream open.
    pub(crate) fn keep_alive(&self) -> &'static [u8] {
        let state = self.lock();
        let stream = state.live.as_ref().and_then(|live| live.stream.as_ref());
        stream.map_or(b"", Streaming::keep_alive)
    }

    /// Ends the call and hands its record to the trial and the store. None if it had ended already.
    pub(crate) fn end(&self, status: CallStatus, error: Option<String>) -> Option<SharedKept> {
        self.end_with(status, error, None)
    }

    /// Ends the call with the answer that its agent gets whole.
    pub(crate) fn end_whole(&self, answer: &Bytes) -> Option<SharedKept> {
        self.end_with(CallStatus::Complete, None, Some(answer))
    }

    fn end_with(
        &self,
        status: CallStatus,
        error: Option<String>,
        answer: Option<&Bytes>,
    ) -> Option<SharedKept> {
        // Held to the end, so that whoever finds the call ended finds its record in the trial too.
        let mut state = self.lock();
        if let (Some(undelivered), Some(answer)) = (&mut state.undelivered, answer) {
            undelivered.pieces.push(answer.clone());
        }
        self.end_locked(&mut state, status, error)
    }

    fn end_locked(
        &self,
        state: &mut CallState,
        status: CallStatus,
        error: Option<String>,
    ) -> Option<SharedKept> {
        let mut live = state.live.take()?;
        let plan = live.recorder.take_plan();
        let answers = live.recorder.take_answers();
        let unrecorded = live.recorder.unrecorded_tokens();
        let calls = live.recorder.finish(status, error).into_iter();
        let mut calls: Vec<_> = calls.map(|call| CallEntry { call: Arc::new(call), told: None }).collect();
        let is_complete = calls.iter().all(|kept| kept.call.status == CallStatus::Complete);
        if let (Some(plan), Some(kept)) = (plan, calls.first_mut()) {
            kept.told = Some(plan.answered(self.trial.memory(), &kept.call, answers));
        }
        let records: Vec<_> = calls.iter().map(|kept| Arc::clone(&kept.call)).collect();
        // Before the trial lets go of the call: a seal that finds no call under way is written behind all records.
        let kept = SharedKept(live.place.keep_calls(calls).shared());
        self.trial.call_ended(self.ordinal, &records, unrecorded);
        state.records = records;
        state.undelivered = state.undelivered.take().filter(|_| is_complete);
        state.undelivered.iter_mut().for_each(|answer| answer.kept = Some(kept.clone()));
        if let Some(waiting) = live.waiting {
            waiting.wake();
        }
        Some(kept)
    }

    /// The agent gets an error instead of the answer, because the record was not written in time. The store writes the same
    /// behind the record.
    pub(crate) fn answer_is_replaced(&self) {
        self.trial.undelivered_calls(&self.lock().records);
    }

    /// The connection that reads the answer goes away.
    fn left(&self) {
        let mut state = self.lock();
        if let Some(live) = &state.live {
            let (status, error) = if live.recorder.is_all_said() {
                // Some clients hang up at the finish reason and do not wait for the stream's own end.
                state.undelivered = None;
                (CallStatus::Complete, None)
            } else {
                (CallStatus::Cancelled, Some("the agent left before the answer was whole".to_owned()))
            };
            // Nobody waits for the record any more; it is kept all the same.
            drop(self.end_locked(&mut state, status, error));
        }
        let undelivered = state.undelivered.take().filter(|answer| answer.kept.is_some());
        drop(state);
        if let (Some(fingerprint), Some(answer)) = (self.fingerprint, undelivered) {
            self.trial.undelivered(fingerprint, answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReadOutcome, Broken>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(Broken::Unfinished("none began")));
        };
        let step = stream.poll_step(&mut self.recorder, cx);
        if step.is_pending() {
            // Ending the call drops the answer, which then wakes nobody: `end_locked` does.
            match &mut self.waiting {
                Some(waker) => waker.clone_from(cx.waker()),
                waiting => *waiting = Some(cx.waker().clone()),
            }
        }
        step
    }
}

impl Future for SharedKept {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(store::outcome)
    }
}

/// Holds a call for the agent's connection: when that goes away before the call has ended, the call is cancelled, and
/// upstream with it.
#[derive(Debug)]
pub(crate) struct CallGuard {
    call: Arc<InFlightCall>,
}

impl CallGuard {
    pub(crate) fn new(call: Arc<InFlightCall>) -> Self {
        Self { call }
    }

    pub(crate) fn call(&self) -> &InFlightCall {
        &self.call
    }

    /// The connection has taken the answer's end: no retry gets it any more.
    pub(crate) fn delivered(&self) {
        self.call.lock().undelivered = None;
    }

    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Next, Broken>> {
        self.call.poll_next(cx)
    }

    /// Ends the call because nothing more can come of it.
    pub(crate) fn give_up(&self, broken: Broken) -> Broken {
        drop(self.call.end(CallStatus::Failed, Some(broken.to_string())));
        broken
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.call.left();
    }
}
