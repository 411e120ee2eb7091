//! Support for trainers that group trials by their position in a batch: a fixed number of consecutive rows is a group.
//!
//! One extra row shifts every later group, and no check of the trainer detects this. So a file for such a trainer has
//! one row per trial, and all its groups have the same size. The plan of the export fills short groups or leaves them
//! out. A trial without a group among groups of several trials remains, and [`Positions`] rejects it.

use super::compared::ComparedTrial;
use super::lines::refused;
use super::sequence::Sequence;
use crate::export::exporter::ExportError;

/// The size of the groups written so far.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    group_size: Option<usize>,
}

impl Positions {
    /// Returns the trial's single row.
    ///
    /// # Errors
    /// The trial has more than one row, or its group does not have the size of the earlier groups.
    pub(crate) fn take<'a>(&mut self, trial: &'a ComparedTrial) -> Result<Option<Sequence<'a>>, ExportError> {
        let Some(branch) = only_branch(trial)? else { return Ok(None) };
        let size = trial.group.map_or(1, |group| group.trials);
        let expected = *self.group_size.get_or_insert(size);
        if size != expected {
            let problem = format!(
                "its group has {size} trials here and the first one {expected}, and this trainer finds groups by \
                 counting rows; a trial without a group_id is a group of 1, so export such trials apart from groups"
            );
            return Err(refused(branch.row, problem));
        }
        Ok(Some(branch))
    }
}

/// Returns the trial's single row.
///
/// # Errors
/// The trial has more than one row.
pub(crate) fn only_branch(trial: &ComparedTrial) -> Result<Option<Sequence<'_>>, ExportError> {
    let [row, others @ ..] = trial.rows.as_slice() else { return Ok(None) };
    if !others.is_empty() {
        let problem = format!(
            "{} of its branches are trained, and this trainer takes a row for a trial; export with --on-fork longest",
            trial.rows.len()
        );
        return Err(refused(row, problem));
    }
    Sequence::of(row).map(Some)
}
