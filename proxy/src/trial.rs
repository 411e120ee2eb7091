//! A live trial: the calls that it may make, the calls in flight, and its state.
//!
//! While a trial is resident, the data that its next call may build on is in memory (`residency`).
//!
//! A trial is sealed once. Sealing ends every call in flight, including its record, before it returns. Nothing changes
//! the trial's calls after that.

mod admission;
pub(crate) mod call;
mod call_rate;
mod conversations;
mod counting;
pub(crate) mod disconnect;
pub(crate) mod keep_alive;
pub(crate) mod observer;
pub(crate) mod registry;
pub(crate) mod replay;
mod residency;
pub(crate) mod retry;
mod reward;
mod status;
pub(crate) mod stream;
pub(crate) mod tap;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::ids::CallId;
use rolltap_rollout::rollout::TrialRewards;
use tokio::sync::RwLock;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use self::admission::{CallRefusal, Candidate};
use self::call_rate::CallRate;
use self::residency::MemoryUse;
pub(crate) use self::residency::{Idle, Resident};
pub(crate) use self::reward::RewardConflict;
use crate::common::clock;
use crate::dialect::responses;
use crate::prefix::Memory;
use crate::recorder::{CallStart, Prompts, Recorder};
use crate::store::{CallSlots, Event, Opened, RecoveredTrial, Store, Summary, completion_tokens};
use crate::trial::call::{InFlightCall, Live};
use crate::trial::replay::Replay;
use crate::trial::retry::{Fingerprint, Undelivered};

/// A trial that this process knows.
#[derive(Debug)]
pub(crate) struct Trial {
    opened: Opened,
    state: Mutex<TrialState>,
    sealed: CancellationToken,
    /// Cancelled once the trial's opening is written or withdrawn.
    opening: CancellationToken,
    responses: Arc<responses::Memory>,
    /// The conversations that its calls can continue token for token.
    memory: Memory,
    /// The parts of its calls' prompts that need not be read again.
    prompts: Arc<Prompts>,
    /// Whether the data that its next call needs is in memory.
    is_resident: RwLock<bool>,
}

#[derive(Debug, Default)]
struct TrialState {
    calls: Calls,
    in_flight: HashMap<u64, Arc<InFlightCall>>,
    undelivered: Undelivered,
    /// The token counting requests in flight.
    counts: usize,
    admitted: u64,
    rate: CallRate,
    completion_tokens: u64,
    /// The memory that its calls use.
    weight: MemoryUse,
    /// The summary of the calls at the time of the last request for it.
    summary: Option<Arc<Summary>>,
    sealed_at: Option<Timestamp>,
    rewards: TrialRewards,
}

/// The location of a trial's finished calls.
#[derive(Debug)]
enum Calls {
    /// In memory, in the order in which they ended: the next call may build on any call.
    Here(Vec<Arc<Call>>),
    /// Only in the store, for a sealed trial and for an evicted one.
    Stored,
}

impl Default for Calls {
    fn default() -> Self {
        Self::Here(Vec::new())
    }
}

impl Trial {
    pub(crate) fn new(opened: Opened) -> Self {
        Self {
            opened,
            state: Mutex::default(),
            sealed: CancellationToken::new(),
            opening: CancellationToken::new(),
            responses: Arc::default(),
            memory: Memory::default(),
            prompts: Arc::default(),
            is_resident: RwLock::new(true),
        }
    }

    /// Restores a trial of an earlier process. Its calls stay in the store until a reader needs them.
    pub(crate) fn restored(found: RecoveredTrial) -> Self {
        let mut trial = Self::new(found.opened);
        trial.is_resident = RwLock::new(false);
        trial.opening.cancel();
        if found.sealed_at.is_some() {
            trial.sealed.cancel();
        }
        let mut state = trial.lock();
        state.calls = Calls::Stored;
        state.sealed_at = found.sealed_at;
        state.summary = found.summary.map(Arc::new);
        state.rewards = found.rewards;
        drop(state);
        trial
    }

    /// Returns the parameters with which the trial was opened.
    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Returns the answers that its calls can continue by `previous_response_id`.
    pub(crate) fn responses(&self) -> &Arc<responses::Memory> {
        &self.responses
    }

    /// Returns the conversations that its calls can continue token for token.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the token that is cancelled when the trial is sealed.
    pub(crate) fn sealed(&self) -> &CancellationToken {
        &self.sealed
    }

    /// Returns a guard for the task that writes the trial's opening. The opening ends when the guard drops.
    pub(crate) fn opening(&self) -> DropGuard {
        self.opening.clone().drop_guard()
    }

    /// Waits until the trial's opening is written or withdrawn.
    pub(crate) async fn opening_ended(&self) {
        self.opening.cancelled().await;
    }

    /// Admits a call, unless the trial is sealed or has reached a limit. The call may go upstream once its intent is durable.
    pub(crate) fn admit(
        self: &Arc<Self>,
        _resident: &Resident<'_>,
        candidate: Candidate,
    ) -> Result<Arc<InFlightCall>, CallRefusal> {
        let Candidate { slots, dialect, started_at, fingerprint, redaction, gateway, observer } = candidate;
        // One lock spans the check and the insertion, so parallel calls cannot exceed a limit.
        let mut state = self.lock();
        state.may_call(&self.opened.limits)?;
        let ordinal = state.admitted;
        state.admitted += 1;
        let trial_id = self.opened.facts.trial_id.clone();
        let call_id = CallId::generate();
        let recorder = Recorder::begin(CallStart {
            call_id: call_id.clone(),
            trial_id: trial_id.clone(),
            dialect,
            started_at,
            prompts: Arc::clone(&self.prompts),
            redaction,
        });
        let CallSlots { intent, record } = slots;
        let intent = intent.append(Event::Intent { trial_id, call_id, at: started_at });
        let live = Live::begin(recorder, intent, record);
        let call = InFlightCall::new(Arc::clone(self), ordinal, fingerprint, gateway, observer, live);
        let call = Arc::new(call);
        state.in_flight.insert(ordinal, Arc::clone(&call));
        Ok(call)
    }

    /// Stores the answer of a call whose agent disconnected before the end, for a marked retry.
    pub(crate) fn undelivered(&self, fingerprint: Fingerprint, answer: Replay) {
        let mut state = self.lock();
        // A sealed trial answers no retries.
        if state.sealed_at.is_none() {
            state.undelivered.add(fingerprint, answer);
        }
    }

    /// Returns the recorded answer for a marked retry, which is then not sampled. Removes the answer, so that no other
    /// retry gets it.
    pub(crate) fn retried(&self, fingerprint: Fingerprint) -> Option<Replay> {
        self.lock().undelivered.take(fingerprint)
    }

    /// Returns the keys that override those in the request of the call with this ordinal. Each call has its own seed:
    /// with equal seeds, equal prompts would get equal samples.
    pub(crate) fn enforced(&self, ordinal: u64) -> Cow<'_, serde_json::Map<String, serde_json::Value>> {
        let Some(seed) = self.opened.seed else { return Cow::Borrowed(&self.opened.sampling) };
        let mut enforced = self.opened.sampling.clone();
        // vLLM takes signed seeds of 64 bits.
        enforced.insert("seed".to_owned(), seed.wrapping_add_unsigned(ordinal).into());
        Cow::Owned(enforced)
    }

    /// Stores the records of a call that was in flight: one record, or one for each prompt of a batch. `unrecorded`
    /// tokens were sampled without ids, and count only for the limit of tokens.
    pub(crate) fn call_ended(&self, ordinal: u64, calls: &[Arc<Call>], unrecorded: u64) {
        let mut state = self.lock();
        state.in_flight.remove(&ordinal);
        state.completion_tokens += unrecorded;
        state.completion_tokens += calls.iter().map(|call| completion_tokens(call)).sum::<u64>();
        calls.iter().for_each(|call| state.weight.add(call));
        if let Calls::Here(ended) = &mut state.calls {
            ended.extend_from_slice(calls);
        }
    }

    /// Marks calls whose agent got an error instead of the answer: their tokens are not trained.
    pub(crate) fn undelivered_calls(&self, calls: &[Arc<Call>]) {
        let mut state = self.lock();
        state.summary = None;
        let Calls::Here(ended) = &mut state.calls else { return };
        let is_undelivered =
            |call: &Call| calls.iter().any(|undelivered| undelivered.call_id == call.call_id);
        let complete = ended.iter_mut().filter(|call| call.status == CallStatus::Complete);
        complete.filter(|call| is_undelivered(call)).for_each(|call| Arc::make_mut(call).is_undelivered());
    }

    /// Seals the trial and ends the calls in flight. Returns the time of the seal, and whether this call sealed the
    /// trial.
    pub(crate) fn seal(&self) -> (Timestamp, bool) {
        let mut state = self.lock();
        if let Some(sealed_at) = state.sealed_at {
            return (sealed_at, false);
        }
        let now = clock::now();
        state.sealed_at = Some(now);
        // A call that ends at this moment removes itself. The others are ended outside the trial's lock, because each
        // call takes that lock to hand over its record.
        let stragglers: Vec<_> = state.in_flight.values().cloned().collect();
        state.undelivered.clear();
        drop(state);
        self.sealed.cancel();
        for call in stragglers {
            call.end(
                CallStatus::Cancelled,
                Some("the trial was sealed while the call was under way".to_owned()),
            );
        }
        self.prompts.clear();
        self.memory.close();
        self.responses.close();
        (now, true)
    }

    /// Returns the finished calls so far, in the order of their ids, which is the order of time.
    pub(crate) async fn calls(&self, store: &Store) -> Vec<Arc<Call>> {
        let here = match &self.lock().calls {
            Calls::Here(calls) => Some(calls.clone()),
            Calls::Stored => None,
        };
        let mut calls = match here {
            Some(calls) => calls,
            None => {
                let stored = store.calls(&self.opened.facts.trial_id).await;
                stored.into_iter().map(|kept| kept.call).collect()
            }
        };
        calls.sort_by(|a, b| a.call_id.cmp(&b.call_id));
        calls
    }

    /// Removes the calls from memory. They are all in the store and do not change any more, so readers use the store.
    pub(crate) fn rest(&self) {
        self.lock().calls = Calls::Stored;
    }

    fn lock(&self) -> MutexGuard<'_, TrialState> {
        // No code that holds the lock can leave the state half changed, so a poisoned lock is safe.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
