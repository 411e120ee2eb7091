//! The common part of the JSON Lines formats: it writes an object per line and counts what the format cannot represent.

use std::io::Write;

use serde::Serialize;

use super::json;
use crate::export::exporter::{ExportError, Omission, Trial};
use crate::row::RolloutRow;

/// An output with one JSON object per line. It reuses one buffer.
#[derive(Debug)]
pub(crate) struct Lines<W> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> Lines<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, line: Vec::new() }
    }

    /// Appends an object of that trial. Numbers have enough digits to restore the same bits.
    pub(crate) fn write(&mut self, trial_id: &str, object: &impl Serialize) -> Result<(), ExportError> {
        self.line.clear();
        let formed = json::append(&mut self.line, object);
        formed
            .map_err(|source| ExportError::Form { trial_id: trial_id.to_owned(), source: source.into() })?;
        self.line.push(b'\n');
        Ok(self.out.write_all(&self.line)?)
    }

    pub(crate) fn finish(mut self) -> Result<(), ExportError> {
        Ok(self.out.flush()?)
    }
}

/// Counts of the omissions of a format, in the order of the first occurrence.
#[derive(Debug, Default)]
pub(crate) struct Tally(Vec<(&'static str, u64)>);

impl Tally {
    /// Adds to the count of `what`, a text that continues a number: see [`Omission::what`].
    pub(crate) fn add(&mut self, what: &'static str, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        match self.0.iter_mut().find(|(known, _)| *known == what) {
            Some((_, total)) => *total = total.saturating_add(count),
            // A property that never occurred is not an omission.
            None if count > 0 => self.0.push((what, count)),
            None => {}
        }
    }

    pub(crate) fn omissions(self) -> Vec<Omission> {
        self.0.into_iter().map(|(what, count)| Omission { what: what.to_owned(), count }).collect()
    }
}

/// Returns the error that a format cannot represent the row's trial.
pub(crate) fn refused(row: &RolloutRow, problem: impl Into<String>) -> ExportError {
    ExportError::Refused {
        trial_id: row.trial_id.clone(),
        branch_index: row.branch_index,
        problem: problem.into(),
    }
}

/// Rejects a trial with a number that is not finite. JSON cannot represent it, and a reader would take the `null` for
/// "no number". [`super::refusal`] checks the numbers of tokens.
pub(crate) fn refuse_numbers(trial: &Trial) -> Result<(), ExportError> {
    let Some(row) = trial.rows.first() else { return Ok(()) };
    let named = row.rewards.iter().map(|(name, &value)| (format!("rewards[{name:?}]"), Some(value)));
    let own = [("reward".to_owned(), trial.reward), ("advantage".to_owned(), trial.advantage)];
    match own.into_iter().chain(named).find(|(_, value)| value.is_some_and(|value| !value.is_finite())) {
        Some((name, Some(value))) => Err(refused(row, format!("its {name} is {value}"))),
        _ => Ok(()),
    }
}
