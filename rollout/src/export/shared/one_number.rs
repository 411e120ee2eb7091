//! Formats with one number per trial, which is the reward or the advantage.

use super::compared::ComparedTrial;
use super::lines::refused;
use crate::export::exporter::ExportError;

/// Which of both the number is in this export.
#[derive(Debug, Default)]
pub(crate) struct OneNumber {
    /// `None` before the first trial.
    are_advantages: Option<bool>,
}

impl OneNumber {
    /// Returns the trial's advantage if the export has advantages, and its reward otherwise.
    ///
    /// # Errors
    /// Another trial of the export had an advantage and this one has none, or the other way round. The trainer could not
    /// distinguish them.
    pub(crate) fn of(&mut self, trial: &ComparedTrial) -> Result<f64, ExportError> {
        let has_advantage = trial.advantage.is_some();
        if *self.are_advantages.get_or_insert(has_advantage) == has_advantage {
            return Ok(trial.advantage.unwrap_or(trial.reward));
        }
        let problem = "some trials of the export have an advantage and some have none, and this format holds either the \
                       advantages or the rewards of all";
        trial.rows.first().map_or(Ok(trial.reward), |row| Err(refused(row, problem)))
    }
}
