//! The names and numbers of groups and trials for trainers.

use std::collections::HashSet;

use super::lines::refused;
use crate::export::exporter::{ExportError, GroupPlace};
use crate::row::RolloutRow;

/// Returns a number for the group in which a trial is compared. Trials without a group get distinct numbers below 0,
/// because a trainer may treat samples without a group as one group of the whole batch.
pub(crate) fn group_number(group: Option<GroupPlace>, trial_ordinal: usize) -> i64 {
    let number = |ordinal: usize| i64::try_from(ordinal).unwrap_or(i64::MAX);
    group.map_or_else(|| -1 - number(trial_ordinal), |group| number(group.ordinal))
}

/// Returns the name of the group in which a trial is compared, or the trial's own name if it has no group.
pub(crate) fn group_name(row: &RolloutRow) -> &str {
    row.group_id.as_deref().unwrap_or(&row.trial_id)
}

/// The trials written so far, for trainers that identify a trial by its group and sample index.
#[derive(Debug, Default)]
pub(crate) struct Samples(HashSet<(String, i32)>);

impl Samples {
    /// # Errors
    /// An earlier trial has the same name. A trainer would treat both as one trial.
    pub(crate) fn add(&mut self, row: &RolloutRow) -> Result<(), ExportError> {
        let group = group_name(row);
        if self.0.insert((group.to_owned(), row.sample_index)) {
            return Ok(());
        }
        let problem = format!(
            "another trial is sample {} of group {group:?} too, and this format tells trials apart by nothing else; \
             export without superseded attempts",
            row.sample_index
        );
        Err(refused(row, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_trials_without_a_group_share_a_number() {
        let grouped = |ordinal| group_number(Some(GroupPlace { ordinal, trials: 2 }), 7);
        let numbers = [grouped(0), grouped(1), group_number(None, 0), group_number(None, 1)];
        assert_eq!(numbers, [0, 1, -1, -2]);
    }
}
