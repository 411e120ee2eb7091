//! Writes rows into a Parquet file.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{RecordBatch, StructArray};
use arrow_schema::{ArrowError, DataType, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::column::{Column, downcast};
use crate::row::{RolloutRow, SCHEMA_VERSION};

/// The maximal encoded size of a row group in bytes. It bounds the memory of the writer and of readers.
const MAX_ROW_GROUP_BYTES: usize = 64 << 20;

/// The maximal number of rows of a row group. It is high enough for the column chunks of small rows to compress.
const MAX_ROW_GROUP_ROWS: usize = 16_384;

/// Columns without statistics: lists whose minimum and maximum have no use, and texts too long for the footer.
const WITHOUT_STATISTICS: [&[&str]; 8] = [
    &["token_ids", "list", "element"],
    &["sampled_mask", "list", "element"],
    &["trainable_mask", "list", "element"],
    &["loss_mask", "list", "element"],
    &["logprobs", "list", "element"],
    &["token_version", "list", "element"],
    &["calls", "list", "element", "sampling"],
    &["calls", "list", "element", "messages"],
];

/// Why a row, or the file, was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The row has a value that Parquet cannot represent.
    #[error("trial {trial_id}, branch {branch_index}: cannot write the row as Parquet: {source}")]
    Row {
        /// The row's trial.
        trial_id: String,
        /// The row's branch.
        branch_index: i32,
        /// The encoder's error.
        source: ArrowError,
    },
    /// Writing to the output failed, or the file could not be encoded.
    #[error("cannot write Parquet: {0}")]
    File(#[from] ParquetError),
}

/// Writes rows one after the other. Rows are encoded at once and buffered, compressed, until their row group is full.
///
/// A file is complete only after [`Self::finish`], because Parquet has its index at the end.
#[derive(Debug)]
pub struct ParquetWriter<W: Write + Send> {
    file: ArrowWriter<W>,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Starts a file.
    pub fn new(out: W) -> Result<Self, WriteError> {
        Self::with_row_groups_of(out, MAX_ROW_GROUP_ROWS)
    }

    /// Starts a file with row groups of at most `rows` rows (at least 1), for readers that process a file in pieces.
    pub fn with_row_groups_of(out: W, rows: usize) -> Result<Self, WriteError> {
        let DataType::Struct(fields) = RolloutRow::data_type() else {
            return Err(ParquetError::General("a row is not a struct".into()).into());
        };
        let schema = Arc::new(Schema::new(fields));
        Ok(Self { file: ArrowWriter::try_new(out, schema, Some(properties(rows)))? })
    }

    /// Adds one row. A rejected row leaves no trace in the file.
    pub fn write(&mut self, row: &RolloutRow) -> Result<(), WriteError> {
        let batch = one_row(row).map_err(|source| WriteError::Row {
            trial_id: row.trial_id.clone(),
            branch_index: row.branch_index,
            source,
        })?;
        Ok(self.file.write(&batch)?)
    }

    /// Writes the last row group and the index, and returns the output.
    pub fn finish(self) -> Result<W, WriteError> {
        Ok(self.file.into_inner()?)
    }
}

fn one_row(row: &RolloutRow) -> Result<RecordBatch, ArrowError> {
    let record = RolloutRow::to_array(std::iter::once(row))?;
    let record: &StructArray =
        downcast(&record).map_err(|mismatch| ArrowError::InvalidArgumentError(mismatch.to_string()))?;
    Ok(RecordBatch::from(record))
}

fn properties(max_rows: usize) -> WriterProperties {
    let about = [
        ("schema_version", SCHEMA_VERSION),
        ("writer", "rolltap"),
        ("writer_version", env!("CARGO_PKG_VERSION")),
    ];
    let about = about.map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned()));
    let properties = WriterProperties::builder()
        .set_created_by(concat!("rolltap version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(about.to_vec()))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).unwrap_or_default()))
        // A dictionary more than doubles the size of token lists, which have long runs and many values.
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(max_rows.max(1)))
        .set_max_row_group_bytes(Some(MAX_ROW_GROUP_BYTES))
        // Chunk statistics are enough for readers that skip row groups.
        .set_statistics_enabled(EnabledStatistics::Chunk);
    let without_statistics = WITHOUT_STATISTICS
        .iter()
        .map(|path| ColumnPath::new(path.iter().map(|&part| part.to_owned()).collect()));
    without_statistics
        .fold(properties, |properties, column| {
            properties.set_column_statistics_enabled(column, EnabledStatistics::None)
        })
        .build()
}
