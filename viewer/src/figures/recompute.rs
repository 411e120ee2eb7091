//! The differences between captured and recomputed logprobs of a branch.

use std::collections::BTreeMap;

use rolltap_rollout::check::recomputation::{Bounds, RecomputedRow};
use rolltap_rollout::row::RolloutRow;

use crate::collection::TrialContent;

/// The bounds of the classes of absolute differences in nats, from equal to far apart.
const CLASSES: [(f64, &str); 5] = [
    (0.001, "up to 0.001"),
    (0.01, "up to 0.01"),
    (0.1, "up to 0.1"),
    (1.0, "up to 1"),
    (f64::INFINITY, "above 1"),
];

/// A branch in the report of a recomputation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recomputed<'t> {
    pub(crate) line: &'t RecomputedRow,
    /// The compared tokens by their index.
    pub(crate) tokens: BTreeMap<usize, Difference>,
    /// The number of tokens of the report that have another logprob in the row, or that the row does not have.
    pub(crate) foreign: usize,
}

/// One compared token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The logprob of the row in nats.
    pub(crate) captured: f32,
    /// The recomputed logprob in nats. `None` if it is no finite number.
    pub(crate) recomputed: Option<f32>,
}

impl Difference {
    /// Returns the absolute difference in nats, infinite without a recomputed logprob.
    pub(crate) fn size(self) -> f64 {
        self.recomputed.map_or(f64::INFINITY, |logprob| (f64::from(logprob) - f64::from(self.captured)).abs())
    }

    /// Returns the class of the difference, from 0 for equal logprobs to 4.
    pub(crate) fn class(self) -> usize {
        let size = self.size();
        CLASSES.iter().position(|(bound, _)| size <= *bound).unwrap_or(CLASSES.len() - 1)
    }

    /// Returns the descriptions of the classes.
    pub(crate) fn classes() -> impl Iterator<Item = (usize, &'static str)> {
        CLASSES.iter().map(|(_, words)| *words).enumerate()
    }
}

impl<'t> Recomputed<'t> {
    /// Returns the differences of a branch. `None` if the report does not have it. The last of several lines counts.
    pub(crate) fn of(trial: &'t TrialContent, row: &RolloutRow) -> Option<Self> {
        let line = trial.recomputed.iter().rfind(|line| line.branch_index == row.branch_index)?;
        let (mut tokens, mut foreign) = (BTreeMap::new(), 0);
        for ((position, captured), recomputed) in
            line.positions.iter().zip(&line.captured).zip(&line.recomputed)
        {
            let index = usize::try_from(*position).unwrap_or(usize::MAX);
            if row.logprobs.get(index) == Some(captured) {
                tokens.insert(index, Difference { captured: *captured, recomputed: *recomputed });
            } else {
                foreign += 1;
            }
        }
        Some(Self { line, tokens, foreign })
    }

    /// Returns the mean absolute difference in nats, 0 without tokens.
    pub(crate) fn mean(&self) -> f64 {
        let sum: f64 = self.tokens.values().map(|difference| difference.size()).sum();
        if self.tokens.is_empty() { 0.0 } else { sum / self.tokens.len() as f64 }
    }

    /// Returns the token with the largest difference, the first of several.
    pub(crate) fn largest(&self) -> Option<(usize, Difference)> {
        let tokens = self.tokens.iter().map(|(index, difference)| (*index, *difference));
        tokens.reduce(|largest, token| if token.1.size() > largest.1.size() { token } else { largest })
    }

    /// Whether the server refused the branch, or a difference is over a bound of the check.
    pub(crate) fn is_beyond(&self) -> bool {
        let largest = self.largest().map_or(0.0, |(_, difference)| difference.size());
        let bounds = Bounds { token: self.line.token_bound, mean: self.line.mean_bound };
        self.line.refused.is_some() || !bounds.hold(largest, self.mean())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_without_a_number_is_over_every_bound() {
        let none = Difference { captured: -0.5, recomputed: None };
        assert_eq!((none.size(), none.class()), (f64::INFINITY, 4));
        let equal = Difference { captured: -0.5, recomputed: Some(-0.5) };
        assert_eq!((equal.size(), equal.class()), (0.0, 0));
        assert_eq!(Difference { captured: -0.5, recomputed: Some(-0.55) }.class(), 2);
    }
}
