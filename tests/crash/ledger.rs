//! What the agents and their runner were told: the promises that the store is held to.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use super::dialects::Speech;

/// A trial's book, shared by the agent that writes it and whoever verifies.
#[derive(Clone, Debug)]
pub(crate) struct Book(Arc<Mutex<Page>>);

#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) number: u32,
    pub(crate) trial_id: String,
    pub(crate) speech: Speech,
    pub(crate) state: State,
    /// Requests that the agent began to send.
    pub(crate) asked: u64,
    /// Answers whose end the agent saw.
    pub(crate) seen: BTreeSet<u32>,
    pub(crate) reward: Reward,
    /// The bytes of its calls, once nothing may change them.
    pub(crate) calls: Option<String>,
    /// The bytes of its rollout, once its reward was acknowledged.
    pub(crate) rollout: Option<String>,
    /// All of it was verified after the last change; what is left is to see that it stays so.
    pub(crate) is_settled: bool,
}

/// How far a trial's life is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It was to be opened, and no answer came: it is there, or it is not.
    Asked,
    Open,
    /// It was to be sealed, and no answer came yet.
    Sealing,
    Sealed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reward {
    None,
    /// It was sent, and no answer came yet.
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
            reward: Reward::None,
            calls: None,
            rollout: None,
            is_settled: false,
        })))
    }

    pub(crate) fn page(&self) -> MutexGuard<'_, Page> {
        self.0.lock().unwrap()
    }

    /// Sees that what may not change any more is as it was, and keeps it where it is seen for the first time.
    pub(crate) fn is_as_ever(known: &mut Option<String>, seen: String) -> bool {
        *known.get_or_insert_with(|| seen.clone()) == seen
    }
}
