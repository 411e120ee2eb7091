//! A call between its admission and its record. The first of these events ends the call and writes the record: the end of
//! the answer, an error, the agent's disconnect, or the seal of the trial.

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
use crate::trial::disconnect::{self, Gateway, Progress};
use crate::trial::observer::{self, CallObserver};
use crate::trial::replay::{Replay, ReplayHead, ReplayRecord};
use crate::trial::retry::Fingerprint;
use crate::trial::stream::{Broken, ReadOutcome, Streaming};
use crate::upstream::UpstreamBody;

/// A call in flight. The agent's connection and the trial share it, so that a seal can end the call of a client that has
/// stopped reading.
#[derive(Debug)]
pub(crate) struct InFlightCall {
    trial: Arc<Trial>,
    /// The index of the call in its trial, from 0.
    ordinal: u64,
    /// Identifies a marked retry of the call. `None` if the client does not mark retries.
    fingerprint: Option<Fingerprint>,
    gateway: Option<Gateway>,
    observer: CallObserver,
    state: Mutex<CallState>,
}

#[derive(Debug)]
struct CallState {
    /// `None` once the call has ended.
    live: Option<Live>,
    /// The answer until the agent has received its end. `None` if the client does not mark retries.
    undelivered: Option<Replay>,
    /// The finished records. Empty until the call has ended.
    records: Vec<Arc<Call>>,
}

/// The parts of a call that end with it.
#[derive(Debug)]
pub(super) struct Live {
    recorder: Recorder,
    /// Resolves once the intent to send the call is durable.
    intent: Option<Durable>,
    place: QueueSlot,
    /// The streaming answer. Dropping it makes upstream stop sampling.
    stream: Option<Streaming>,
    /// Wakes the connection that waits for more of the answer.
    waiting: Option<Waker>,
}

/// The next part of a streaming answer.
#[derive(Debug)]
pub(crate) enum Next {
    /// Events for the agent.
    Events(Bytes),
    /// The last events, which must wait until the record is durable.
    Last { events: Bytes, kept: SharedDurable },
}

/// Resolves once the call's record is durable. The connection that delivers the answer's end waits for it, and so does the
/// connection of a retry.
#[derive(Clone, Debug)]
pub(crate) struct SharedDurable(Shared<Durable>);

/// The call was ended concurrently.
#[derive(Debug, thiserror::Error)]
#[error("the call was ended: its trial is sealed")]
pub(crate) struct CallEnded;

impl InFlightCall {
    pub(super) fn new(
        trial: Arc<Trial>,
        ordinal: u64,
        fingerprint: Option<Fingerprint>,
        gateway: Option<Gateway>,
        observer: CallObserver,
        live: Live,
    ) -> Self {
        let state = Mutex::new(CallState { live: Some(live), undelivered: None, records: Vec::new() });
        Self { trial, ordinal, fingerprint, gateway, observer, state }
    }

    pub(crate) fn trial(&self) -> &Trial {
        &self.trial
    }

    pub(crate) fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Adds to the record, unless the call has ended.
    pub(crate) fn record<T>(&self, add: impl FnOnce(&mut Recorder) -> T) -> Result<T, CallEnded> {
        self.lock().live.as_mut().map(|live| add(&mut live.recorder)).ok_or(CallEnded)
    }

    /// Returns once the intent to send the call is durable. A crash after this point leaves a record of the call.
    pub(crate) async fn is_intended(&self) -> Result<Result<(), StoreError>, CallEnded> {
        let intent = self.lock().live.as_mut().ok_or(CallEnded)?.intent.take();
        Ok(match intent {
            Some(intent) => store::outcome(intent.await),
            None => Ok(()),
        })
    }

    /// Starts to store the answer for a retry, if the client marks retries.
    pub(crate) fn answer_begins(&self, head: &response::Parts) {
        if self.fingerprint.is_some() {
            let head = ReplayHead { status: head.status, headers: head.headers.clone() };
            self.lock().undelivered = Some(Replay { head, pieces: Vec::new(), record: None });
        }
    }

    /// Takes over the streaming answer.
    pub(crate) fn stream(&self, upstream: UpstreamBody, back: ResponseAdapter) -> Result<(), CallEnded> {
        let mut state = self.lock();
        let live = state.live.as_mut().ok_or(CallEnded)?;
        live.stream = Some(Streaming::new(upstream, back));
        Ok(())
    }

    /// Polls the streaming answer for its next events, on behalf of the agent's connection.
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

    /// Returns the bytes that keep a silent stream open.
    pub(crate) fn keep_alive(&self) -> &'static [u8] {
        let state = self.lock();
        let stream = state.live.as_ref().and_then(|live| live.stream.as_ref());
        stream.map_or(b"", Streaming::keep_alive)
    }

    /// Ends the call and hands its record to the trial and the store. `None` if the call has ended already.
    pub(crate) fn end(&self, status: CallStatus, error: Option<String>) -> Option<SharedDurable> {
        self.end_with(status, error, None)
    }

    /// Ends the call with a whole answer for its agent.
    pub(crate) fn end_whole(&self, answer: &Bytes) -> Option<SharedDurable> {
        self.end_with(CallStatus::Complete, None, Some(answer))
    }

    fn end_with(
        &self,
        status: CallStatus,
        error: Option<String>,
        answer: Option<&Bytes>,
    ) -> Option<SharedDurable> {
        // The lock is held to the end, so that a reader that sees the call ended also finds its record in the trial.
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
    ) -> Option<SharedDurable> {
        let mut live = state.live.take()?;
        let plan = live.recorder.take_plan();
        let answers = live.recorder.take_answers();
        let unrecorded = live.recorder.unrecorded_tokens();
        let redaction = live.recorder.redaction();
        let sending = observer::sending(&live.recorder);
        let calls = live.recorder.finish(status, error).into_iter();
        let mut calls: Vec<_> = calls.map(|call| CallEntry { call: Arc::new(call), told: None }).collect();
        let is_complete = calls.iter().all(|kept| kept.call.status == CallStatus::Complete);
        if let (Some(plan), Some(kept)) = (plan, calls.first_mut()) {
            kept.told = Some(plan.answered(self.trial.memory(), &kept.call, answers, &redaction));
        }
        let records: Vec<_> = calls.iter().map(|kept| Arc::clone(&kept.call)).collect();
        // The record is queued before the trial drops the call: a seal that finds no call in flight must be written after
        // all records.
        let kept = SharedDurable(live.place.append_calls(calls).shared());
        self.trial.call_ended(self.ordinal, &records, unrecorded);
        self.observer.ended(&records, sending);
        state.records = records;
        state.undelivered = state.undelivered.take().filter(|_| is_complete);
        if let (Some(answer), Some(call)) = (&mut state.undelivered, state.records.first()) {
            answer.record = Some(ReplayRecord { call_id: call.call_id.clone(), kept: kept.clone() });
        }
        if let Some(waiting) = live.waiting {
            waiting.wake();
        }
        Some(kept)
    }

    /// Marks the records as undelivered: the agent gets an error instead of the answer, because the record was not durable
    /// in time. The store writes the same mark after the record.
    pub(crate) fn answer_is_replaced(&self) {
        self.trial.undelivered_calls(&self.lock().records);
    }

    /// Handles the disconnect of the agent.
    fn left(&self) {
        let mut state = self.lock();
        if let Some(live) = &state.live {
            let (status, error) = if live.recorder.is_complete() {
                // Some clients disconnect at the finish reason, before the end of the stream.
                state.undelivered = None;
                (CallStatus::Complete, None)
            } else {
                (CallStatus::Cancelled, Some(disconnect::error(live.progress(), self.gateway)))
            };
            // No connection waits for the record any more, but it is written nevertheless.
            drop(self.end_locked(&mut state, status, error));
        }
        let undelivered = state.undelivered.take().filter(|answer| answer.record.is_some());
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
    /// Begins a call that its trial has admitted. `intent` resolves once the intent to send the call is durable.
    pub(super) fn begin(recorder: Recorder, intent: Durable, place: QueueSlot) -> Self {
        Self { recorder, intent: Some(intent), place, stream: None, waiting: None }
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReadOutcome, Broken>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(Broken::Unfinished("none began")));
        };
        let step = stream.poll_step(&mut self.recorder, cx);
        if step.is_pending() {
            // A call that is ended elsewhere drops its stream, which then wakes no task. `end_locked` uses this waker.
            match &mut self.waiting {
                Some(waker) => waker.clone_from(cx.waker()),
                waiting => *waiting = Some(cx.waker().clone()),
            }
        }
        step
    }

    fn progress(&self) -> Progress {
        match self.stream {
            Some(_) => Progress::Begun,
            None => Progress::silent_since(self.recorder.started_at()),
        }
    }
}

impl Future for SharedDurable {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(store::outcome)
    }
}

/// Holds a call for the agent's connection. Dropping the guard before the call has ended cancels the call and its upstream
/// request.
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

    /// Records that the agent has received the answer's end. A retry does not get this answer any more.
    pub(crate) fn delivered(&self) {
        self.call.lock().undelivered = None;
    }

    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Next, Broken>> {
        self.call.poll_next(cx)
    }

    /// Ends the call as failed.
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
