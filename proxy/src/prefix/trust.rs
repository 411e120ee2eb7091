//! How far prompts that are rendered here are trusted to be what the server renders, by kind of request.
//!
//! A kind has a score. Each prompt of the server that is rendered alike here adds one, each trial with one that differs
//! takes [`REFUTATION`] away, and below zero the kind is off. So a template that is not the server's is found out by
//! its first prompt and stays off, and a trial with an odd text (another normal form of Unicode, a date at midnight)
//! does not turn off what hundreds of prompts have proven.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rolltap_rollout::ids::TrialId;

use super::request_kind::RequestKind;

/// What a trial with a prompt that differs costs, in proofs.
const REFUTATION: i32 = 8;
/// The score's bounds: so much of the past counts.
const MOST: i32 = 64;
/// Trials that are remembered to have refuted a kind, the latest ones.
const REFUTERS: usize = 64;

/// The scores of all kinds.
#[derive(Debug, Default)]
pub(super) struct Trust(Mutex<HashMap<RequestKind, Record>>);

#[derive(Debug, Default)]
struct Record {
    score: i32,
    /// Requests of the kind are off for these trials, whatever the score.
    refuters: VecDeque<TrialId>,
}

/// What a proof or a refutation did to a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    TurnedOff,
    TurnedOn,
}

impl Trust {
    /// A prompt of the server is rendered alike here.
    pub(super) fn proven(&self, shape: RequestKind) -> Change {
        let mut records = self.lock();
        let record = records.entry(shape).or_default();
        let was_off = record.is_off();
        record.score = MOST.min(record.score + 1);
        if was_off && !record.is_off() { Change::TurnedOn } else { Change::Nothing }
    }

    /// A prompt of this trial's server is rendered otherwise here. Each trial counts once.
    pub(super) fn refuted(&self, shape: RequestKind, trial: &TrialId) -> Change {
        let mut records = self.lock();
        let record = records.entry(shape).or_default();
        if record.refuters.contains(trial) {
            return Change::Nothing;
        }
        if record.refuters.len() == REFUTERS {
            record.refuters.pop_front();
        }
        record.refuters.push_back(trial.clone());
        let was_off = record.is_off();
        record.score = (-MOST).max(record.score - REFUTATION);
        if !was_off && record.is_off() { Change::TurnedOff } else { Change::Nothing }
    }

    /// Whether a trial's requests of this kind are left to the server.
    pub(super) fn is_off(&self, shape: &RequestKind, trial: &TrialId) -> bool {
        self.lock().get(shape).is_some_and(|record| record.is_off() || record.refuters.contains(trial))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestKind, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn is_off(&self) -> bool {
        self.score < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(number: u32) -> TrialId {
        TrialId::new(format!("trial-{number}")).unwrap()
    }

    fn shape() -> RequestKind {
        RequestKind::named("user")
    }

    #[test]
    fn an_unproven_kind_is_off_with_its_first_refutation_until_proofs_outweigh_it() {
        let trust = Trust::default();
        assert!(!trust.is_off(&shape(), &trial(0)));
        assert_eq!(trust.refuted(shape(), &trial(1)), Change::TurnedOff);
        assert!(trust.is_off(&shape(), &trial(2)));
        for _ in 1..REFUTATION {
            assert_eq!(trust.proven(shape()), Change::Nothing);
        }
        assert_eq!(trust.proven(shape()), Change::TurnedOn);
        assert!(!trust.is_off(&shape(), &trial(2)));
        assert!(trust.is_off(&shape(), &trial(1)), "the trial that refuted it stays without");
        assert!(!trust.is_off(&RequestKind::named("user, tools"), &trial(1)));
    }

    #[test]
    fn a_trial_with_odd_texts_does_not_turn_off_what_is_proven() {
        let trust = Trust::default();
        for _ in 0..REFUTATION {
            trust.proven(shape());
        }
        for _ in 0..100 {
            assert_eq!(trust.refuted(shape(), &trial(1)), Change::Nothing);
        }
        assert!(trust.is_off(&shape(), &trial(1)) && !trust.is_off(&shape(), &trial(2)));
        assert_eq!(trust.refuted(shape(), &trial(3)), Change::TurnedOff, "and another one does");
    }

    #[test]
    fn a_server_that_renders_otherwise_from_now_on_is_found_out() {
        let trust = Trust::default();
        for _ in 0..100_000 {
            trust.proven(shape());
        }
        let change = (0..).map(|number| trust.refuted(shape(), &trial(number)));
        let needed = change.take_while(|change| *change != Change::TurnedOff).count();
        assert_eq!(needed, 8);
        for number in 100..100_000 {
            trust.refuted(shape(), &trial(number));
        }
        let back = std::iter::repeat_with(|| trust.proven(shape()));
        assert_eq!(back.take_while(|change| *change != Change::TurnedOn).count(), 63);
    }
}
