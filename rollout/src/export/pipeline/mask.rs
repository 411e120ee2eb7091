//! The masks of a branch in one export.

use std::ops::Range;

use super::projection::{RowAge, SpanAge};
use crate::row::RolloutRow;

/// Removes the tokens of constrained calls from a mask. Spans outside the mask are ignored here and reported by the
/// checks.
fn without_constrained(mask: &mut [u8], spans: impl IntoIterator<Item = SpanAge>) {
    for span in spans.into_iter().filter(|span| span.constrained) {
        let tokens = range(&span).and_then(|range| mask.get_mut(range));
        tokens.into_iter().flatten().for_each(|token| *token = 0);
    }
}

fn range(span: &SpanAge) -> Option<Range<usize>> {
    Some(usize::try_from(span.start).ok()?..usize::try_from(span.end).ok()?)
}

/// Removes the tokens of constrained calls from a row's masks.
pub(crate) fn mask_constrained(row: &mut RolloutRow) {
    let spans = || row.calls.iter().map(SpanAge::from);
    without_constrained(&mut row.trainable_mask, spans());
    without_constrained(&mut row.loss_mask, spans());
}

/// Removes every token from a row's masks.
pub(crate) fn mask_all(row: &mut RolloutRow) {
    row.trainable_mask.fill(0);
    row.loss_mask.fill(0);
}

/// Returns the number of trained tokens of a mask.
pub(crate) fn trained(mask: &[u8]) -> usize {
    mask.iter().map(|&token| usize::from(token != 0)).sum()
}

/// Returns the index of the branch with the most trainable tokens, the first one if several have as many.
pub(crate) fn longest(trainable: impl IntoIterator<Item = usize>) -> Option<usize> {
    // `max_by_key` would return the last one.
    let branches = trainable.into_iter().enumerate();
    branches.reduce(|best, branch| if branch.1 > best.1 { branch } else { best }).map(|(index, _)| index)
}

/// The tokens of a branch that an export would train, and their policy versions.
pub(crate) struct BranchAge {
    pub(crate) trainable: usize,
    pub(crate) oldest: Option<i32>,
    /// The newest version of all sampled tokens, trained or not.
    pub(crate) newest: Option<i32>,
}

impl BranchAge {
    pub(crate) fn of(row: &RowAge, train_constrained: bool) -> Self {
        let mut mask = row.trainable_mask.clone();
        if !train_constrained {
            without_constrained(&mut mask, row.calls.iter().cloned());
        }
        let versions = || row.token_version.iter().copied();
        let trained_versions = versions().zip(&mask).filter(|(_, token)| **token != 0);
        Self {
            trainable: trained(&mask),
            oldest: trained_versions.map(|(version, _)| version).min(),
            newest: versions().filter(|&version| version >= 0).max(),
        }
    }
}
