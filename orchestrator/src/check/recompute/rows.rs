//! The readable rows of a source, one by one.

use std::path::Path;

use rolltap_rollout::row::RolloutRow;

use crate::source::{Source, SourceError, rows};

/// Passes each row to `take` until it returns false. Skips unreadable rows, which the check of invariants reports. A job
/// is read from its Parquet file if that exists. A capture store gives the rows of its sealed trials.
///
/// # Errors
/// The source cannot be opened.
pub(super) fn each_row(path: &Path, mut take: impl FnMut(RolloutRow) -> bool) -> Result<(), SourceError> {
    let file = match Source::at(path, None)? {
        Source::File(file) => file,
        Source::Job(job) => job.rows.into_iter().next_back().unwrap_or_default(),
        Source::Store(archive) => {
            for (trial, _) in archive.trials().filter(|(trial, _)| trial.sealed_at().is_some()) {
                if !archive.rows(&trial, None).into_iter().all(&mut take) {
                    break;
                }
            }
            return Ok(());
        }
    };
    // The iterator ends with the first row that `take` does not want.
    rows::<RolloutRow>(&file)?.flatten().all(take);
    Ok(())
}
