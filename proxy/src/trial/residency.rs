//! An open trial that nobody calls for keeps nothing in memory: its calls lie in the store, and are read when it is called
//! for again. So is one of the process before this one.

use std::time::Duration;

use jiff::Timestamp;
use rolltap_rollout::call::Call;
use rolltap_rollout::token_list::Footprint;
use tokio::sync::RwLockReadGuard;

use super::{Calls, Trial};
use crate::common::clock;
use crate::store::{Event, Store, completion_tokens};

/// Bytes that a call takes beside its tokens.
const OF_CALL: u64 = 4 << 10;
/// Of a sampled token: its id, its logprob, and its share of a message.
const OF_SAMPLED: u64 = 24;

/// A trial is read again at about 100 MiB of its weight a second, so it sleeps only when it has not been called for a
/// hundred times as long as that takes.
const IDLE_PER_MIB: Duration = Duration::from_secs(1);

/// Holds a trial awake.
#[derive(Debug)]
pub(crate) struct Resident<'a>(
    #[expect(dead_code, reason = "it is there to be held")] RwLockReadGuard<'a, bool>,
);

/// About how much memory a trial's calls take. The messages are counted where they are remembered.
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

/// A trial that could sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Idle {
    /// When its last call ended.
    pub(crate) since: Timestamp,
    /// What it takes of memory, in bytes.
    pub(crate) bytes: u64,
    /// Calls that it has made so far.
    admitted: u64,
}

impl Trial {
    /// Makes it ready to be called for, and holds it so. A sealed one is never called for again.
    pub(crate) async fn awake(&self, store: &Store) -> Resident<'_> {
        let is_awake = self.is_awake.read().await;
        if *is_awake || self.sealed.is_cancelled() {
            return Resident(is_awake);
        }
        drop(is_awake);
        let mut is_awake = self.is_awake.write().await;
        if !*is_awake && !self.sealed.is_cancelled() {
            self.wake(store).await;
            *is_awake = true;
        }
        Resident(is_awake.downgrade())
    }

    async fn wake(&self, store: &Store) {
        let kept = store.calls_to_go_on_from(&self.opened.facts.trial_id).await;
        self.memory.restore(&kept);
        let mut state = self.lock();
        if state.sealed_at.is_some() {
            return;
        }
        state.admitted = state.admitted.max(kept.len() as u64);
        state.completion_tokens = kept.iter().map(|kept| completion_tokens(&kept.call)).sum();
        kept.iter().for_each(|kept| state.weight.add(&kept.call));
        state.calls = Calls::Here(kept.into_iter().map(|kept| kept.call).collect());
    }

    /// How long nobody has called for it, and what it takes meanwhile. None while somebody does, or did a moment ago, and where
    /// it takes nothing.
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

    /// What its calls and messages take of memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let of_calls = self.lock().weight.bytes();
        of_calls + self.memory.bytes()
    }

    /// Forgets what the store has, if nobody has called for it since it was seen to be `idle`; says whether it did.
    pub(crate) async fn evict(&self, idle: Idle, store: &Store) -> bool {
        let trial_id = self.opened.facts.trial_id.clone();
        // What its calls came to is in the store once this is.
        if store.keep(Event::Asleep { trial_id }).await.is_err() {
            return false;
        }
        let Ok(mut is_awake) = self.is_awake.try_write() else { return false };
        let mut state = self.lock();
        let is_as_it_was = state.in_flight.is_empty() && state.admitted == idle.admitted;
        if !is_as_it_was || state.sealed_at.is_some() {
            return false;
        }
        let ended = match &state.calls {
            Calls::Here(calls) => calls.len() as u64,
            Calls::Stored => return false,
        };
        state.summary.take_if(|summary| summary.calls != ended);
        state.calls = Calls::Stored;
        state.weight = MemoryUse::default();
        self.prompts.clear();
        self.memory.forget();
        *is_awake = false;
        true
    }
}
