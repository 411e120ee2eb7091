//! What formats ask of a row before they tell, or leave out, something of it.

use crate::row::RolloutRow;

/// Whether the loss has a token in the row.
pub(crate) fn is_trained(row: &RolloutRow) -> bool {
    row.loss_mask.contains(&1)
}
