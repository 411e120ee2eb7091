//! Questions about a row that decide what a format writes or omits.

use crate::row::RolloutRow;

/// Whether the row has policy versions other than the default, an unnamed version 0.
pub(crate) fn has_versions(row: &RolloutRow) -> bool {
    !row.version_labels.is_empty() || row.token_version.iter().any(|&version| version > 0)
}

/// Whether the row only fills a place in its group: its trial sampled nothing, or does not exist. Every other row has
/// calls.
pub(crate) fn is_filler(row: &RolloutRow) -> bool {
    row.calls.is_empty()
}

/// Whether the loss has a token of the row.
pub(crate) fn is_trained(row: &RolloutRow) -> bool {
    row.loss_mask.contains(&1)
}
