//! The body of a post: lists with an entry per branch, written directly from the rows.

use serde::{Serialize, Serializer};

use crate::export::exporter::Trial;
use crate::export::shared::float_text::{Each, Exact, finite};
use crate::export::shared::row_queries::is_trained;
use crate::export::shared::temperature::divisor;
use crate::export::shared::turn::turns;
use crate::row::RolloutRow;

/// The value of `masks` for a token that is not trained.
const OFF_MASK: i32 = -100;
/// The value of `inference_logprobs` for a token that is not trained. No logprob is positive.
const NO_LOGPROB: f32 = 1.0;

/// The body, with Atropos's names.
#[derive(Serialize)]
pub(super) struct Body<'a> {
    tokens: Vec<&'a [i32]>,
    masks: Vec<Masks<'a>>,
    scores: Vec<Score>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advantages: Option<Vec<Advantages<'a>>>,
    inference_logprobs: Vec<Logprobs<'a>>,
    overrides: Vec<Overrides>,
}

/// A branch, and the trial that it belongs to.
#[derive(Clone, Copy)]
struct Sequence<'a> {
    trial: &'a Trial,
    row: &'a RolloutRow,
}

impl<'a> Body<'a> {
    /// Returns the body of a group.
    pub(super) fn of(trials: &'a [Trial]) -> Self {
        let sequences: Vec<_> = trials
            .iter()
            .flat_map(|trial| trial.rows.iter().map(move |row| Sequence { trial, row }))
            .collect();
        let rows = || sequences.iter().map(|sequence| sequence.row);
        Self {
            tokens: rows().map(|row| row.token_ids.as_slice()).collect(),
            masks: rows().map(Masks).collect(),
            scores: sequences.iter().map(|sequence| Score::of(sequence.trial)).collect(),
            advantages: sequences.iter().map(Advantages::of).collect(),
            inference_logprobs: rows().map(Logprobs).collect(),
            overrides: rows().map(Overrides::of).collect(),
        }
    }

    pub(super) fn has_advantages(&self) -> bool {
        self.advantages.is_some()
    }
}

/// The trial's reward, or the stand-in for it.
struct Score(f64);

impl Score {
    fn of(trial: &Trial) -> Self {
        Self(trial.reward.or(trial.stand_in).unwrap_or_default())
    }
}

impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        finite(&Some(self.0), serializer)
    }
}

/// The ids of trained tokens, and −100 for the others.
struct Masks<'a>(&'a RolloutRow);

impl Serialize for Masks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tokens = self.0.token_ids.iter().zip(&self.0.loss_mask);
        Each(tokens.map(|(&id, &mask)| if mask == 1 { id } else { OFF_MASK })).serialize(serializer)
    }
}

/// The logprobs of trained tokens, and 1.0 for the others.
struct Logprobs<'a>(&'a RolloutRow);

impl Serialize for Logprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tokens = self.0.logprobs.iter().zip(&self.0.loss_mask);
        Exact(tokens.map(|(&logprob, &mask)| if mask == 1 { logprob } else { NO_LOGPROB }))
            .serialize(serializer)
    }
}

/// The trial's advantage for trained tokens, and 0.0 for the others.
struct Advantages<'a> {
    row: &'a RolloutRow,
    advantage: f64,
}

impl<'a> Advantages<'a> {
    /// Returns `None` if the trial needs an advantage and has none.
    fn of(&Sequence { trial, row }: &Sequence<'a>) -> Option<Self> {
        // A trial without trained tokens needs no advantage, and must not remove those of its group.
        let advantage = trial.advantage.or_else(|| (!trial.rows.iter().any(is_trained)).then_some(0.0))?;
        Some(Self { row, advantage })
    }
}

impl Serialize for Advantages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Exact(self.row.loss_mask.iter().map(|&mask| if mask == 1 { self.advantage } else { 0.0 }))
            .serialize(serializer)
    }
}

/// The properties of one sequence that differ from the group's defaults.
#[derive(Serialize)]
struct Overrides {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    set_advantage_to_zero: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

impl Overrides {
    fn of(row: &RolloutRow) -> Self {
        let is_trained = is_trained(row);
        Self { set_advantage_to_zero: !is_trained, temperature: temperature(row).filter(|_| is_trained) }
    }
}

/// Returns the divisor of the logits of all trained turns, if it is known and the same for all.
pub(super) fn temperature(row: &RolloutRow) -> Option<f64> {
    let turns = turns(row).ok()?;
    let trained = turns.iter().filter(|turn| turn.loss_mask().contains(&1));
    // One unknown divisor makes the whole branch unknown, because the field has one number per branch.
    let divisors: Option<Vec<f64>> = trained.map(|turn| divisor(row, turn, None).ok()).collect();
    let divisors = divisors?;
    let first = *divisors.first()?;
    divisors.iter().all(|&divisor| divisor == first).then_some(first)
}
