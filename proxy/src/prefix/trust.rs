//! Scores, per kind of request, how reliably the local rendering equals the server's prompt.
//!
//! Each equal prompt adds one to the score of its kind. Each trial with a different prompt subtracts [`REFUTATION`].
//! Below zero the kind is off. A template that is not the server's is thus detected by its first prompt and stays off.
//! A trial with an unusual text (another Unicode normal form, a date at midnight) does not turn off a kind that
//! hundreds of prompts have proven.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rolltap_rollout::ids::TrialId;

use super::refutation::{Refutation, RefutedKind};
use super::request_kind::RequestKind;

/// The points that a trial with a different prompt subtracts.
const REFUTATION: i32 = 8;
/// The bound of the score in both directions, so that only the recent past counts.
const MOST: i32 = 64;
/// The number of refuting trials that are remembered per kind, the latest ones.
const REFUTERS: usize = 64;

/// The scores of all kinds.
#[derive(Debug, Default)]
pub(super) struct Trust(Mutex<HashMap<RequestKind, Record>>);

#[derive(Debug, Default)]
struct Record {
    score: i32,
    /// Trials for which the kind is off, whatever the score.
    refuters: VecDeque<TrialId>,
    /// The latest difference. `None` if there was none.
    latest: Option<Refutation>,
}

/// The effect of a proof or a refutation on a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    TurnedOff,
    TurnedOn,
}

impl Trust {
    /// Counts a prompt of the server that equals the local rendering.
    pub(super) fn proven(&self, shape: RequestKind) -> Change {
        let mut records = self.lock();
        let record = records.entry(shape).or_default();
        let was_off = record.is_off();
        record.score = MOST.min(record.score + 1);
        if was_off && !record.is_off() { Change::TurnedOn } else { Change::Nothing }
    }

    /// Counts a prompt of this trial's server that differs from the local rendering. Each trial counts once.
    pub(super) fn refuted(&self, shape: RequestKind, trial: &TrialId, refutation: Refutation) -> Change {
        let mut records = self.lock();
        let record = records.entry(shape).or_default();
        // The turns of a trial repeat the same text, so a second difference adds no evidence.
        if record.refuters.contains(trial) {
            return Change::Nothing;
        }
        if record.refuters.len() == REFUTERS {
            record.refuters.pop_front();
        }
        record.refuters.push_back(trial.clone());
        record.latest = Some(refutation);
        let was_off = record.is_off();
        record.score = (-MOST).max(record.score - REFUTATION);
        if !was_off && record.is_off() { Change::TurnedOff } else { Change::Nothing }
    }

    /// Returns whether the server renders this trial's requests of the kind.
    pub(super) fn is_off(&self, shape: &RequestKind, trial: &TrialId) -> bool {
        self.lock().get(shape).is_some_and(|record| record.is_off() || record.refuters.contains(trial))
    }

    /// Returns the kinds with a difference, sorted.
    pub(super) fn refuted_kinds(&self) -> Vec<RefutedKind> {
        let records = self.lock();
        let mut kinds: Vec<_> = records
            .iter()
            .filter_map(|(kind, record)| Some(RefutedKind::of(kind, record.latest.as_ref()?)))
            .collect();
        drop(records);
        kinds.sort_by(|left, right| left.requests.cmp(&right.requests));
        kinds
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
        assert_eq!(trust.refuted(shape(), &trial(1), Refutation::OtherIds), Change::TurnedOff);
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
            assert_eq!(trust.refuted(shape(), &trial(1), Refutation::OtherIds), Change::Nothing);
        }
        assert!(trust.is_off(&shape(), &trial(1)) && !trust.is_off(&shape(), &trial(2)));
        assert_eq!(
            trust.refuted(shape(), &trial(3), Refutation::OtherIds),
            Change::TurnedOff,
            "and another one does"
        );
    }

    #[test]
    fn a_server_that_renders_otherwise_from_now_on_is_found_out() {
        let trust = Trust::default();
        for _ in 0..100_000 {
            trust.proven(shape());
        }
        let change = (0..).map(|number| trust.refuted(shape(), &trial(number), Refutation::OtherIds));
        let needed = change.take_while(|change| *change != Change::TurnedOff).count();
        assert_eq!(needed, 8);
        for number in 100..100_000 {
            trust.refuted(shape(), &trial(number), Refutation::OtherIds);
        }
        let back = std::iter::repeat_with(|| trust.proven(shape()));
        assert_eq!(back.take_while(|change| *change != Change::TurnedOn).count(), 63);
    }
}
