//! `rollout/1` as an export: complete rows in JSON Lines or Parquet. These two formats omit nothing.

use std::io::Write;

use super::jsonl::{self, JsonlWriter};
use super::parquet::{self, ParquetWriter};
use crate::export::exporter::{ExportError, Exporter, Omission, Trial};

/// [`rollout/1`](crate::row) as JSON Lines, a line per branch.
#[derive(Debug)]
pub struct JsonlExporter<W: Write> {
    rows: JsonlWriter<W>,
}

impl<W: Write> JsonlExporter<W> {
    /// Writes to `out`, one row at a time.
    pub fn new(out: W) -> Self {
        Self { rows: JsonlWriter::new(out) }
    }
}

impl<W: Write> Exporter for JsonlExporter<W> {
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        for row in &trial.rows {
            self.rows.write(row).map_err(|error| match error {
                jsonl::WriteError::Io(error) => ExportError::Io(error),
                error => ExportError::Form { trial_id: row.trial_id.clone(), source: error.into() },
            })?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        match self.rows.finish() {
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(ExportError::Io(std::io::Error::other(error))),
        }
    }
}

/// [`rollout/1`](crate::row) as Parquet, a row per branch.
#[derive(Debug)]
pub struct ParquetExporter<W: Write + Send> {
    rows: ParquetWriter<W>,
}

impl<W: Write + Send> ParquetExporter<W> {
    /// Writes to `out`, one row group at a time.
    ///
    /// # Errors
    /// The output failed.
    pub fn new(out: W) -> Result<Self, ExportError> {
        Ok(Self { rows: ParquetWriter::new(out).map_err(failed)? })
    }
}

impl<W: Write + Send> Exporter for ParquetExporter<W> {
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        for row in &trial.rows {
            self.rows.write(row).map_err(|error| match error {
                // An error of the row names its trial. Any other error concerns the output.
                error @ parquet::WriteError::Row { .. } => {
                    ExportError::Form { trial_id: row.trial_id.clone(), source: error.into() }
                }
                error @ parquet::WriteError::File(_) => failed(error),
            })?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.rows.finish().map_err(failed)?.flush()?;
        Ok(Vec::new())
    }
}

fn failed(error: parquet::WriteError) -> ExportError {
    ExportError::Io(std::io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::super::jsonl::JsonlReader;
    use super::super::parquet::ParquetReader;
    use super::*;
    use crate::export::testing::fixture::{forked, straight};
    use crate::row::RolloutRow;

    fn trials() -> [Trial; 2] {
        let with_advantage = |mut trial: Trial| {
            trial.rows.iter_mut().for_each(|row| row.advantage = trial.advantage);
            trial
        };
        [straight(), forked()].map(with_advantage)
    }

    fn rows() -> Vec<RolloutRow> {
        trials().into_iter().flat_map(|trial| trial.rows).collect()
    }

    fn export(mut exporter: Box<dyn Exporter + '_>) {
        trials().into_iter().for_each(|trial| exporter.write(trial).unwrap());
        assert_eq!(exporter.finish().unwrap(), [], "they hold everything");
    }

    #[test]
    fn json_lines_come_back_equal() {
        let mut file = Vec::new();
        export(Box::new(JsonlExporter::new(&mut file)));
        assert_eq!(JsonlReader::new(file.as_slice()).map(Result::unwrap).collect::<Vec<_>>(), rows());
        assert_eq!(rows()[0].advantage, Some(0.5));
    }

    #[test]
    fn parquet_comes_back_equal() {
        let mut file = Vec::new();
        export(Box::new(ParquetExporter::new(&mut file).unwrap()));
        let read = ParquetReader::new(bytes::Bytes::from(file)).unwrap();
        assert_eq!(read.map(Result::unwrap).collect::<Vec<_>>(), rows());
    }

    #[test]
    fn what_json_cannot_hold_is_refused_with_its_trial() {
        let mut trial = straight();
        trial.rows[0].logprobs[2] = f32::NAN;
        let error = JsonlExporter::new(std::io::sink()).write(trial).unwrap_err();
        assert!(error.to_string().contains("trial straight, branch 0: logprobs[2] is NaN"), "{error}");
    }
}
