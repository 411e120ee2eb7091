//! Writes rows into a Parquet file.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

use super::column::Column;
use super::row_group::RowGroup;
use super::schema;
use super::shredded::{LeafBuffer, Place, Unrepresentable};
use crate::row::{RolloutRow, SCHEMA_VERSION};

/// The maximal encoded size of a row group in bytes. It bounds the memory of the writer and of readers.
const MAX_ROW_GROUP_BYTES: usize = 64 << 20;

/// The maximal number of rows of a row group. It is high enough for the column chunks of small rows to compress.
const MAX_ROW_GROUP_ROWS: usize = 16_384;

/// Columns without statistics: lists whose minimum and maximum have no use, and texts too long for the footer.
const WITHOUT_STATISTICS: [&[&str]; 9] = [
    &["token_ids", "list", "element"],
    &["sampled_mask", "list", "element"],
    &["trainable_mask", "list", "element"],
    &["loss_mask", "list", "element"],
    &["logprobs", "list", "element"],
    &["token_version", "list", "element"],
    &["calls", "list", "element", "sampling"],
    &["calls", "list", "element", "messages"],
    &["calls", "list", "element", "tools"],
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
        /// The value that Parquet cannot represent.
        source: Unrepresentable,
    },
    /// Writing to the output failed, or the file could not be encoded.
    #[error("cannot write Parquet: {0}")]
    File(#[from] ParquetError),
}

/// Writes rows one after the other. Rows are encoded at once and buffered, compressed, until their row group is full.
///
/// A file is complete only after [`Self::finish`], because Parquet has its index at the end.
pub struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    /// The rows that are not yet in the file. `None` before the first row of a row group.
    row_group: Option<RowGroup>,
    /// The row that is being written, by column.
    row: Vec<LeafBuffer>,
    max_rows: usize,
}

impl<W: Write + Send> fmt::Debug for ParquetWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParquetWriter").field("file", &self.file).finish_non_exhaustive()
    }
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Starts a file.
    pub fn new(out: W) -> Result<Self, WriteError> {
        Self::with_row_groups_of(out, MAX_ROW_GROUP_ROWS)
    }

    /// Starts a file with row groups of at most `rows` rows (at least 1), for readers that process a file in pieces.
    pub fn with_row_groups_of(out: W, rows: usize) -> Result<Self, WriteError> {
        let Type::GroupType { fields, .. } = RolloutRow::schema("row")? else {
            return Err(ParquetError::General("a row is not a struct".into()).into());
        };
        let schema = Arc::new(schema::root(fields)?);
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties()))?;
        let columns = file.schema_descr().columns().iter();
        let row = columns.map(|column| LeafBuffer::new(column)).collect::<Result<_, _>>()?;
        Ok(Self { file, row_group: None, row, max_rows: rows.max(1) })
    }

    /// Adds one row. A rejected row leaves no trace in the file.
    pub fn write(&mut self, row: &RolloutRow) -> Result<(), WriteError> {
        self.row.iter_mut().for_each(LeafBuffer::clear);
        row.shred(Place::default(), &mut self.row).map_err(|source| WriteError::Row {
            trial_id: row.trial_id.clone(),
            branch_index: row.branch_index,
            source,
        })?;
        let row_group = self.row_group.get_or_insert_with(|| RowGroup::new(&self.file));
        row_group.write(&self.row)?;
        let (rows, bytes) = (row_group.rows(), row_group.bytes());
        // A row group ends before the row of average size with which it would be too large.
        let is_full = rows >= self.max_rows || bytes + bytes / rows > MAX_ROW_GROUP_BYTES;
        if is_full { self.finish_row_group() } else { Ok(()) }
    }

    /// Writes the last row group and the index, and returns the output.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.finish_row_group()?;
        Ok(self.file.into_inner()?)
    }

    fn finish_row_group(&mut self) -> Result<(), WriteError> {
        match self.row_group.take() {
            Some(row_group) => Ok(row_group.finish(&mut self.file)?),
            None => Ok(()),
        }
    }
}

fn properties() -> WriterProperties {
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
