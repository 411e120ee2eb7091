//! Tokens that a trial's agent recorded itself: where they are in the trial's folder, and how they are used.
//!
//! If the proxy captured no call of a trial, these tokens become its calls, and its rows are marked so (`origin`).
//! Otherwise the capture counts, and the two are compared. [`Returned`] records either outcome.

mod files;

use std::collections::BTreeMap;

use rolltap_rollout::agent_reported::Comparison;
use rolltap_rollout::call::Call;
use rolltap_rollout::check::{Captured, Options, check_trial};
use rolltap_rollout::rollout::{self, Reward, TrialFacts};
use rolltap_rollout::row::RolloutRow;
use serde::{Deserialize, Serialize};

pub(crate) use files::{FromAgent, look};

/// The record of a trial's agent, as the trial's result shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Returned {
    /// The path of the file, relative to the trial's folder. `None` if no file could be read.
    pub file: Option<String>,
    /// The number of turns in the record.
    pub turns: usize,
    /// The number of turns that can be trained on.
    pub trainable: usize,
    /// The flaws of the turns, each with the number of turns that have it.
    pub flaws: BTreeMap<String, usize>,
    /// Whether the trial's rows are made from this record, because nothing was captured.
    pub taken: bool,
    /// The comparison with the captured calls. `None` if nothing was captured.
    pub comparison: Option<Comparison>,
    /// Errors of reading or comparing.
    pub problems: Vec<String>,
}

impl Returned {
    /// Summarises a record. Whether it is used is decided later.
    pub(crate) fn of(found: &FromAgent) -> Self {
        let mut flaws = BTreeMap::new();
        for flaw in found.calls.iter().flat_map(|call| &call.flaws) {
            // The serialized form of a flaw is its name in records.
            let name = serde_json::to_value(flaw).ok().and_then(|name| name.as_str().map(str::to_owned));
            *flaws.entry(name.unwrap_or_default()).or_default() += 1;
        }
        Self {
            file: Some(found.file.clone()),
            turns: found.calls.len(),
            trainable: found.trainable(),
            flaws,
            ..Self::default()
        }
    }

    /// Returns one line for each fact that a user should know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.problems.clone();
        let file = self.file.as_deref().unwrap_or_default();
        if self.taken {
            let Self { turns, trainable, .. } = self;
            let flaws: Vec<_> = self.flaws.iter().map(|(flaw, count)| format!(", {count} {flaw}")).collect();
            notes.push(format!(
                "no call was captured; taken from {file}: {turns} turns, {trainable} can be trained on{}",
                flaws.concat()
            ));
        }
        if let Some(comparison) = self.comparison.as_ref().filter(|comparison| !comparison.agrees()) {
            notes.push(format!("{file} differs from what was captured, which counts: {comparison}"));
        }
        notes
    }

    /// Whether the record is incomplete, unreadable, or differs from the capture.
    pub(crate) fn is_doubtful(&self) -> bool {
        let differs = self.comparison.as_ref().is_some_and(|comparison| !comparison.agrees());
        differs || !self.problems.is_empty() || (self.taken && self.trainable < self.turns)
    }
}

/// Makes the rows of a trial without captured calls from the calls in its agent's record.
///
/// # Errors
/// The first breach of an invariant of rollouts.
pub(crate) fn rows(
    facts: &TrialFacts,
    reward: &Reward,
    superseded: bool,
    calls: &[Call],
) -> Result<Vec<RolloutRow>, String> {
    let mut rows = rollout::rows(facts, reward, calls);
    rows.iter_mut().for_each(|row| row.superseded = superseded);
    // An agent's record must satisfy the same invariants as captured calls.
    let captured = Captured::new(calls).training(facts.training);
    let breaches = check_trial(&facts.trial_id, &rows, Some(&captured), Options::default());
    breaches.first().map_or(Ok(rows), |breach| Err(breach.to_string()))
}
