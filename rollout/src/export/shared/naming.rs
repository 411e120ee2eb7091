//! How trainers name groups and trials.

use std::collections::HashSet;

use super::lines::refused;
use crate::export::exporter::{ExportError, GroupPlace};
use crate::row::RolloutRow;

/// A number for what a trial is compared within. Trials of no group have one of their own each, below 0: a trainer that
/// meets a sample without a group may take a whole batch for one.
pub(crate) fn group_number(group: Option<GroupPlace>, trial_ordinal: usize) -> i64 {
    let number = |ordinal: usize| i64::try_from(ordinal).unwrap_or(i64::MAX);
    group.map_or_else(|| -1 - number(trial_ordinal), |group| number(group.ordinal))
}

/// The name of what a trial is compared within: its group or, where it has none, itself.
pub(crate) fn group_name(row: &RolloutRow) -> &str {
    row.group_id.as_deref().unwrap_or(&row.trial_id)
}

/// The trials written so far, for trainers that know a trial by its group and which sample of it it is.
#[derive(Debug, Default)]
pub(crate) struct Samples(HashSet<(String, i32)>);

impl Samples {
    /// # Errors
    /// The trial of that row is the second of its name; a trainer would take the two for one.
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
