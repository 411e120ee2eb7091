//! The answers that the agents and their runner got. Each is a promise that the store must fulfil.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use super::dialects::Speech;
use super::holders::Lease;

/// A trial's book, shared by the agent that writes it and the code that verifies it.
#[derive(Clone, Debug)]
pub(crate) struct Book(Arc<Mutex<Page>>);

#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) number: u32,
    pub(crate) trial_id: String,
    pub(crate) speech: Speech,
    pub(crate) state: State,
    /// The number of requests that the agent began to send.
    pub(crate) asked: u64,
    /// The answers whose end the agent saw.
    pub(crate) seen: BTreeSet<u32>,
    /// The latest lease under which an answer ended whose end the agent saw. `None` without a cluster.
    pub(crate) lease: Option<Lease>,
    pub(crate) reward: Reward,
    /// The bytes of its calls, once they are final.
    pub(crate) calls: Option<String>,
    /// The bytes of its rollout, once its reward was acknowledged.
    pub(crate) rollout: Option<String>,
    /// Whether everything was verified after the last change. Later checks only confirm that nothing changes.
    pub(crate) is_settled: bool,
}

/// The acknowledged part of a trial's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The opening was requested, but not answered: the trial may exist or not.
    Asked,
    Open,
    /// The seal was requested, and there is no answer yet.
    Sealing,
    Sealed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reward {
    None,
    /// The reward was sent, and there is no answer yet.
    Sent(f64),
    Kept(f64),
}

impl Book {
    pub(crate) fn new(number: u32, speech: Speech) -> Self {
        Self(Arc::new(Mutex::new(Page {
            number,
            trial_id: format!("trial-{number}"),
            speech,
            state: State::Asked,
            asked: 0,
            seen: BTreeSet::new(),
            lease: None,
            reward: Reward::None,
            calls: None,
            rollout: None,
            is_settled: false,
        })))
    }

    pub(crate) fn page(&self) -> MutexGuard<'_, Page> {
        self.0.lock().unwrap()
    }

    /// Returns whether a final text is unchanged, and stores it if this is its first reading.
    pub(crate) fn is_as_ever(known: &mut Option<String>, seen: String) -> bool {
        *known.get_or_insert_with(|| seen.clone()) == seen
    }
}
