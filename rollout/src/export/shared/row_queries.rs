//! What formats ask of a row before they tell, or leave out, something of it.

use crate::row::RolloutRow;

/// Whether the row's policy versions say more than that nobody ever named one.
pub(crate) fn has_versions(row: &RolloutRow) -> bool {
    !row.version_labels.is_empty() || row.token_version.iter().any(|&version| version > 0)
}

/// Whether the loss has a token in the row.
pub(crate) fn is_trained(row: &RolloutRow) -> bool {
    row.loss_mask.contains(&1)
}
