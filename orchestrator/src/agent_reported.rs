//! Tokens that a trial's agent handed back itself: where they lie in the trial's folder, and what becomes of them.
//!
//! Where the proxy captured no call of a trial, they are its tokens, and its rows say so (`origin`). Where it did, the
//! capture counts, and the two are compared: [`Returned`] is the record of either.

mod files;

use std::collections::BTreeMap;

use rolltap_rollout::agent_reported::Comparison;
use rolltap_rollout::call::Call;
use rolltap_rollout::check::{Captured, Options, check_trial};
use rolltap_rollout::rollout::{self, Reward, TrialFacts};
use rolltap_rollout::row::RolloutRow;
use serde::{Deserialize, Serialize};

pub(crate) use files::{FromAgent, look};

/// What a trial's agent handed back, as it stands in the trial's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Returned {
    /// The file, seen from the trial's folder; none where nothing in it could be read.
    pub file: Option<String>,
    /// Turns that it tells of.
    pub turns: usize,
    /// How many of them can be trained on.
    pub trainable: usize,
    /// What the others lack, and how many turns do.
    pub flaws: BTreeMap<String, usize>,
    /// Nothing was captured of the trial, so that its rows are made of this.
    pub taken: bool,
    /// Against what was captured, where something was.
    pub comparison: Option<Comparison>,
    /// What could not be read or compared.
    pub problems: Vec<String>,
}

impl Returned {
    /// Of what was found; no decision is made yet.
    pub(crate) fn of(found: &FromAgent) -> Self {
        let mut flaws = BTreeMap::new();
        for flaw in found.calls.iter().flat_map(|call| &call.flaws) {
            // The name in records.
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

    /// A line for each thing that a user should know.
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

    /// Whether something is not as it should be.
    pub(crate) fn is_doubtful(&self) -> bool {
        let differs = self.comparison.as_ref().is_some_and(|comparison| !comparison.agrees());
        differs || !self.problems.is_empty() || (self.taken && self.trainable < self.turns)
    }
}

/// The rows of a trial of which nothing was captured.
///
/// # Errors
/// They break an invariant of rollouts: the first of them.
pub(crate) fn rows(
    facts: &TrialFacts,
    reward: &Reward,
    superseded: bool,
    calls: &[Call],
) -> Result<Vec<RolloutRow>, String> {
    let mut rows = rollout::rows(facts, reward, calls);
    rows.iter_mut().for_each(|row| row.superseded = superseded);
    let captured = Captured::new(calls).training(facts.training);
    let breaches = check_trial(&facts.trial_id, &rows, Some(&captured), Options::default());
    breaches.first().map_or(Ok(rows), |breach| Err(breach.to_string()))
}
