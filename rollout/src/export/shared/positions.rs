//! For trainers that tell which trials to compare by their place in a batch: so many rows from the first on are a group.
//!
//! A row too many shifts every group after it, and none of the trainer's checks sees that. So such a file has one row for
//! each trial, and groups that are all of one size: the one that they were opened with, where it is known, for that is the
//! size that the trainer cuts the file by.

use super::compared::ComparedTrial;
use super::lines::refused;
use super::sequence::Sequence;
use crate::export::exporter::ExportError;

/// The places taken so far.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    group_size: Option<usize>,
}

impl Positions {
    /// The trial's one row.
    ///
    /// # Errors
    /// It has more rows than one, or its group is not of its own full size or not of the size of those before.
    pub(crate) fn take<'a>(&mut self, trial: &'a ComparedTrial) -> Result<Option<Sequence<'a>>, ExportError> {
        let Some(branch) = only_branch(trial)? else { return Ok(None) };
        let size = trial.group.map_or(1, |group| group.trials);
        let whole = trial.group.and(branch.row.group_size).and_then(|whole| usize::try_from(whole).ok());
        if let Some(whole) = whole.filter(|&whole| whole != size) {
            let problem = format!(
                "its group has {size} trials here of {whole}, and this trainer finds groups by counting rows; --failed mask \
                 keeps those that failed, and a group that lacks others has to be left out"
            );
            return Err(refused(branch.row, problem));
        }
        let expected = *self.group_size.get_or_insert(size);
        if size != expected {
            let problem = format!(
                "its group has {size} trials here and the first one {expected}, and this trainer finds groups by \
                 counting rows; export groups that are whole, with --failed mask or drop-group"
            );
            return Err(refused(branch.row, problem));
        }
        Ok(Some(branch))
    }
}

/// The trial's one row.
///
/// # Errors
/// It has more rows than one.
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
