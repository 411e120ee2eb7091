//! How trainers name groups and trials.

use std::collections::HashSet;

use super::exporter::ExportError;
use super::lines::refused;
use crate::row::RolloutRow;

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
