//! Eviction and reload of trials. An idle open trial uses no memory: its calls are in the store, and are loaded at its
//! next call. A trial of an earlier process is loaded in the same way.

use std::time::Duration;

use jiff::Timestamp;
use rolltap_rollout::call::Call;
use rolltap_rollout::token_list::Footprint;
use tokio::sync::RwLockReadGuard;

use super::{Calls, Trial};
use crate::common::clock;
use crate::store::{Event, Store, completion_tokens};

/// The estimated bytes of a call in addition to its tokens.
const OF_CALL: u64 = 4 << 10;
/// The estimated bytes of a sampled token: its id, its logprob, and its share of a message.
const OF_SAMPLED: u64 = 24;

/// The idle time per MiB after which a trial may be evicted. A reload reads about 100 MiB a second. A trial is thus
/// idle for at least a hundred times as long as its reload takes.
const IDLE_PER_MIB: Duration = Duration::from_secs(1);

/// Prevents the eviction of a trial while the value exists.
#[derive(Debug)]
pub(crate) struct Resident<'a>(
    #[expect(dead_code, reason = "it is there to be held")] RwLockReadGuard<'a, bool>,
);

/// An estimate of the memory that a trial's calls use. `Memory` counts the messages.
#[derive(Debug, Default)]
pub(super) struct MemoryUse {
    beside_prompts: u64,
    prompts: Footprint,
    last_call: Option<Timestamp>,
}

impl MemoryUse {
    pub(super) fn add(&mut self, call: &Call) {
        self.beside_prompts += OF_CALL + completion_tokens(call) * OF_SAMPLED;
        self.prompts.add(&call.prompt_token_ids);
        self.last_call = Some(clock::now());
    }

    fn bytes(&self) -> u64 {
        self.beside_prompts + self.prompts.bytes() as u64
    }
}

/// A trial that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Idle {
    /// The time at which its last call ended.
    pub(crate) since: Timestamp,
    /// The memory that the trial uses, in bytes.
    pub(crate) bytes: u64,
    /// The number of calls that it has made so far.
    admitted: u64,
}

impl Trial {
    /// Loads the trial if it was evicted, and prevents its eviction while the result exists. A sealed trial is not
    /// loaded, because it takes no further call.
    pub(crate) async fn resident(&self, store: &Store) -> Resident<'_> {
        let is_resident = self.is_resident.read().await;
        if *is_resident || self.sealed.is_cancelled() {
            return Resident(is_resident);
        }
        // Release the read lock first: to wait for the write lock while holding it would deadlock.
        drop(is_resident);
        let mut is_resident = self.is_resident.write().await;
        // A concurrent call may have loaded the trial meanwhile.
        if !*is_resident && !self.sealed.is_cancelled() {
            self.wake(store).await;
            *is_resident = true;
        }
        Resident(is_resident.downgrade())
    }

    async fn wake(&self, store: &Store) {
        let kept = store.calls_to_go_on_from(&self.opened.facts.trial_id).await;
        self.memory.restore(&kept);
        let mut state = self.lock();
        if state.sealed_at.is_some() {
            return;
        }
        // The counter starts at 0 after a restart. The stored calls give a lower bound.
        state.admitted = state.admitted.max(kept.len() as u64);
        state.completion_tokens = kept.iter().map(|kept| completion_tokens(&kept.call)).sum();
        kept.iter().for_each(|kept| state.weight.add(&kept.call));
        state.calls = Calls::Here(kept.into_iter().map(|kept| kept.call).collect());
    }

    /// Returns since when the trial has been idle and how much memory it uses. `None` if it has calls in flight or
    /// recent calls, if it is sealed, or if its calls use no memory.
    pub(crate) fn idle(&self) -> Option<Idle> {
        if self.sealed.is_cancelled() {
            return None;
        }
        let bytes = self.bytes();
        let state = self.lock();
        let is_idle = state.in_flight.is_empty() && state.weight.bytes() > 0;
        let since = state.weight.last_call.filter(|_| is_idle)?;
        let for_long = IDLE_PER_MIB.mul_f64(bytes as f64 / f64::from(1 << 20));
        if clock::now().duration_since(since).unsigned_abs() < for_long {
            return None;
        }
        Some(Idle { since, bytes, admitted: state.admitted })
    }

    /// Returns the memory that its calls and messages use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let of_calls = self.lock().weight.bytes();
        of_calls + self.memory.bytes()
    }

    /// Removes the data from memory that the store has, if no call was made since the trial was found `idle`. Returns
    /// whether the data was removed.
    pub(crate) async fn evict(&self, idle: Idle, store: &Store) -> bool {
        let trial_id = self.opened.facts.trial_id.clone();
        // Once this event is durable, the results of all earlier calls are in the store too.
        if store.append(Event::Evicted { trial_id }).await.is_err() {
            return false;
        }
        // A call holds the read lock, so a lock that is not free means that the trial is in use.
        let Ok(mut is_resident) = self.is_resident.try_write() else { return false };
        let mut state = self.lock();
        let is_as_it_was = state.in_flight.is_empty() && state.admitted == idle.admitted;
        if !is_as_it_was || state.sealed_at.is_some() {
            return false;
        }
        let ended = match &state.calls {
            Calls::Here(calls) => calls.len() as u64,
            Calls::Stored => return false,
        };
        // A summary that misses calls would stay forever: the calls in the store are not counted again.
        state.summary.take_if(|summary| summary.calls != ended);
        state.calls = Calls::Stored;
        state.weight = MemoryUse::default();
        self.prompts.clear();
        self.memory.forget();
        *is_resident = false;
        true
    }
}
