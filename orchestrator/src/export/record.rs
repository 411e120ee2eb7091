//! The file of a few trials in memory, for a reader who looks at single records.

use std::io::Cursor;

use rolltap_rollout::export::exporter::{ExportError, Omission, Trial};
use rolltap_rollout::export::format::{Format, FormatOptions};

use super::output::Draft;

/// A file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The content of the file.
    pub bytes: Vec<u8>,
    /// Values that the format cannot hold.
    pub omissions: Vec<Omission>,
}

/// Writes trials that a plan has selected in the format of a trainer.
///
/// # Errors
/// The format cannot represent a trial.
pub fn record(
    format: Format,
    options: &FormatOptions,
    trials: impl IntoIterator<Item = Trial>,
) -> Result<Record, ExportError> {
    // A draft, because the exporters are compiled once for each type of output.
    let mut draft = Draft::Memory(Cursor::default());
    let mut exporter = format.exporter(&mut draft, options)?;
    trials.into_iter().try_for_each(|trial| exporter.write(trial))?;
    let omissions = exporter.finish()?;
    let bytes = match draft {
        Draft::Memory(data) => data.into_inner(),
        Draft::Spool(_) | Draft::Aside { .. } => Vec::new(),
    };
    Ok(Record { bytes, omissions })
}
