//! What of a branch is trained in one export.

use std::ops::Range;

use super::projection::{RowAge, SpanAge};
use crate::row::RolloutRow;

/// Takes the tokens of constrained calls out of a mask. Spans outside of it are for the checks to tell.
fn without_constrained(mask: &mut [u8], spans: impl IntoIterator<Item = SpanAge>) {
    for span in spans.into_iter().filter(|span| span.constrained) {
        let tokens = range(&span).and_then(|range| mask.get_mut(range));
        tokens.into_iter().flatten().for_each(|token| *token = 0);
    }
}

fn range(span: &SpanAge) -> Option<Range<usize>> {
    Some(usize::try_from(span.start).ok()?..usize::try_from(span.end).ok()?)
}

/// Takes the tokens of constrained calls out of a row's masks.
pub(crate) fn mask_constrained(row: &mut RolloutRow) {
    let spans = || row.calls.iter().map(SpanAge::from);
    without_constrained(&mut row.trainable_mask, spans());
    without_constrained(&mut row.loss_mask, spans());
}

/// Takes every token out of a row's masks.
pub(crate) fn mask_all(row: &mut RolloutRow) {
    row.trainable_mask.fill(0);
    row.loss_mask.fill(0);
}

/// How many tokens of a mask are trained.
pub(crate) fn trained(mask: &[u8]) -> usize {
    mask.iter().map(|&token| usize::from(token != 0)).sum()
}

/// The index of the branch with the most trainable tokens; of those that have as many, the first.
pub(crate) fn longest(trainable: impl IntoIterator<Item = usize>) -> Option<usize> {
    // `max_by_key` would give the last.
    let branches = trainable.into_iter().enumerate();
    branches.reduce(|best, branch| if branch.1 > best.1 { branch } else { best }).map(|(index, _)| index)
}

/// What an export would train of a branch, and with tokens of which policy.
pub(crate) struct BranchAge {
    pub(crate) trainable: usize,
    pub(crate) oldest: Option<i32>,
    /// Of all that was sampled, trained or not.
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
