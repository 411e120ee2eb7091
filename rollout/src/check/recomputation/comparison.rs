//! Differences between captured and recomputed logprobs, in sums per policy version.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Comparable, ComparedToken, Policy};
use crate::check::one_line;

/// The largest differences of a row that count as equal, in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// For each token.
    pub token: f64,
    /// For the mean over the compared tokens of the row.
    pub mean: f64,
}

impl Bounds {
    /// Whether the largest difference of a row and the mean of its differences are within the bounds. A difference that is
    /// no number is over each bound.
    pub fn hold(self, largest: f64, mean: f64) -> bool {
        largest <= self.token && mean <= self.mean
    }
}

/// Sums over compared tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Rows with at least one of the tokens.
    pub rows: u64,
    /// The tokens.
    pub tokens: u64,
    /// The largest absolute difference in nats.
    pub largest: f64,
    absolute: f64,
    k1: f64,
    k3: f64,
}

impl Figures {
    fn add(&mut self, difference: Difference) {
        // The logarithm of the probability ratio of the recomputed to the captured policy.
        let ratio = difference.recomputed - f64::from(difference.captured);
        self.tokens += 1;
        if exceeds(ratio.abs(), self.largest) {
            self.largest = ratio.abs();
        }
        self.absolute += ratio.abs();
        self.k1 -= ratio;
        self.k3 += ratio.exp_m1() - ratio;
    }

    /// Returns the mean absolute difference in nats, 0 without tokens.
    pub fn mean(&self) -> f64 {
        self.per_token(self.absolute)
    }

    /// Returns the estimate of KL(captured ‖ recomputed) per token that is unbiased and may be negative: the mean of
    /// captured − recomputed.
    pub fn kl_k1(&self) -> f64 {
        self.per_token(self.k1)
    }

    /// Returns the estimate of the same that is never negative: the mean of exp(d) − 1 − d, with d = recomputed −
    /// captured. Both are named as in Schulman, "Approximating KL Divergence" (2020).
    pub fn kl_k3(&self) -> f64 {
        self.per_token(self.k3)
    }

    fn per_token(&self, sum: f64) -> f64 {
        if self.tokens == 0 { 0.0 } else { sum / self.tokens as f64 }
    }
}

/// Returns whether a size is over another, where NaN is over every number. `f64::max` ignores NaN.
fn exceeds(size: f64, other: f64) -> bool {
    size > other || (size.is_nan() && !other.is_nan())
}

/// One compared token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The index in the row's `token_ids`.
    pub index: usize,
    /// The captured logprob in nats.
    pub captured: f32,
    /// The recomputed logprob in nats.
    pub recomputed: f64,
}

impl Difference {
    fn size(&self) -> f64 {
        (self.recomputed - f64::from(self.captured)).abs()
    }
}

/// A row with a difference over a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Beyond {
    /// The trial.
    pub trial_id: String,
    /// The row's `branch_index`.
    pub branch_index: i32,
    /// The number of compared tokens of the row.
    pub tokens: u64,
    /// Their mean absolute difference in nats.
    pub mean: f64,
    /// The largest difference.
    pub worst: Difference,
}

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trial_id, branch_index, tokens, mean, worst } = self;
        let Difference { index, captured, recomputed } = worst;
        // The server computes with 32 bits too.
        let recomputed = *recomputed as f32;
        write!(
            f,
            "trial {}, branch {branch_index}: recomputed: mean difference {mean:.2e} over {tokens} tokens, largest {:.2e} \
             at token_ids[{index}]: captured {captured}, recomputed {recomputed}",
            one_line(trial_id),
            worst.size(),
        )
    }
}

/// The comparison of all rows so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    bounds: Bounds,
    /// By policy version.
    pub policies: BTreeMap<Policy, Figures>,
    /// Over all policy versions.
    pub all: Figures,
    /// The number of rows with a difference over a bound.
    pub beyond: u64,
}

impl Comparison {
    /// Returns a comparison before its first row.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, policies: BTreeMap::new(), all: Figures::default(), beyond: 0 }
    }

    /// Adds a row and the logprobs of its `token_ids` after the first. Returns the row if a difference is over a bound.
    /// A row without compared tokens adds nothing.
    pub fn add(&mut self, row: &Comparable, logprobs: &[f64]) -> Option<Beyond> {
        let mut own = Figures::default();
        let mut worst = None::<Difference>;
        let mut policies = BTreeSet::new();
        for ComparedToken { index, captured, policy } in &row.tokens {
            // A missing logprob counts as an infinite difference, so that a wrong caller cannot pass the check.
            let found = index.checked_sub(1).and_then(|index| logprobs.get(index));
            let recomputed = found.copied().unwrap_or(f64::NEG_INFINITY);
            let difference = Difference { index: *index, captured: *captured, recomputed };
            let figures = self.policies.entry(policy.clone()).or_default();
            for figures in [figures, &mut self.all, &mut own] {
                figures.add(difference);
            }
            policies.insert(policy);
            if worst.is_none_or(|worst| exceeds(difference.size(), worst.size())) {
                worst = Some(difference);
            }
        }
        let worst = worst?;
        self.all.rows += 1;
        for policy in policies {
            self.policies.entry(policy.clone()).or_default().rows += 1;
        }
        if self.bounds.hold(own.largest, own.mean()) {
            return None;
        }
        self.beyond += 1;
        let (trial_id, branch_index) = (row.trial_id.clone(), row.branch_index);
        Some(Beyond { trial_id, branch_index, tokens: own.tokens, mean: own.mean(), worst })
    }
}
