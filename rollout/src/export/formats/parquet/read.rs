//! Reads rows from a Parquet file, which may be foreign or damaged.
//!
//! The Parquet decoder panics on some damaged pages. A file of unknown origin must not end a proxy or a job. For this
//! reason each call of the decoder is [`contained`], and its panic becomes an ordinary error.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;

use super::column::compatible;
use crate::export::pipeline::projection::RowPart;
use crate::row::RolloutRow;

/// The number of rows that are decoded together. It is small, because a row can have a million tokens.
const ROWS_AT_A_TIME: usize = 16;

/// Why a file, or one of its rows, was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not Parquet, or is truncated or damaged.
    #[error("not a readable Parquet file: {0}")]
    File(#[from] ParquetError),
    /// The file is Parquet, but does not have rollout rows.
    #[error("not a file of rollout/1 rows: column {column}: {problem}")]
    Schema {
        /// The column, with inner fields joined by dots.
        column: String,
        /// The actual and the expected type.
        problem: String,
    },
    /// A row group is damaged.
    #[error("row group {row_group}: cannot read on from row {row} of the file: {problem}")]
    RowGroup {
        /// The index of the row group, from 0.
        row_group: usize,
        /// The first unreadable row, counted from 0 through the whole file.
        row: u64,
        /// The decoder's error.
        problem: String,
    },
    /// A value does not have the type of a row's column.
    #[error("row group {row_group}, row {row} of the file, column {column}: {problem}")]
    Value {
        /// The index of the row group, from 0.
        row_group: usize,
        /// The index of the row, from 0 through the whole file.
        row: u64,
        /// The column, with inner fields joined by dots.
        column: String,
        /// The actual and the expected value.
        problem: String,
    },
}

/// Reads rows on demand. Columns may be in any order, and unknown columns are ignored.
///
/// The first error ends the iterator, because the start of the next row is unknown then.
#[derive(Debug)]
pub struct ParquetReader<T = RolloutRow> {
    batches: ParquetRecordBatchReader,
    batch: Batch,
    row_groups: RowGroups,
    rows_read: u64,
    has_failed: bool,
    part: PhantomData<T>,
}

impl ParquetReader {
    /// Opens a file (a [`std::fs::File`], or bytes in memory) and checks its columns.
    pub fn new(input: impl ChunkReader + 'static) -> Result<Self, ReadError> {
        Self::of_parts(input)
    }
}

impl<T: RowPart> ParquetReader<T> {
    /// Opens a file, checks its columns, and reads only the columns of `T`.
    pub fn of_parts(input: impl ChunkReader + 'static) -> Result<Self, ReadError> {
        // The Arrow schema of another writer may name other Arrow types for the same Parquet types.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let open = || ParquetRecordBatchReaderBuilder::try_new_with_options(input, options);
        let builder = contained(open).unwrap_or_else(|panic| Err(ParquetError::General(panic)))?;
        let (expected, found) = (T::data_type(), DataType::Struct(builder.schema().fields().clone()));
        compatible(&expected, &found)
            .map_err(|m| ReadError::Schema { column: m.path, problem: m.problem })?;
        let known = known_columns(&expected, &found);
        let projection = ProjectionMask::roots(builder.parquet_schema(), known);
        // Before the projection, which consumes the builder.
        let row_groups = RowGroups::new(builder.metadata().row_groups().iter().map(|group| group.num_rows()));
        let build = || builder.with_projection(projection).with_batch_size(ROWS_AT_A_TIME).build();
        let batches = contained(build).unwrap_or_else(|panic| Err(ParquetError::General(panic)))?;
        Ok(Self {
            batches,
            batch: Batch::default(),
            row_groups,
            rows_read: 0,
            has_failed: false,
            part: PhantomData,
        })
    }

    fn read_next(&mut self) -> Option<Result<T, ReadError>> {
        while self.batch.is_read() {
            match contained(|| self.batches.next()) {
                Ok(Some(Ok(batch))) => self.batch = Batch::new(batch),
                Ok(Some(Err(error))) => return Some(Err(self.damaged(error.to_string()))),
                // A truncated row group ends the decoder without an error, so the row count of the index decides.
                Ok(None) if self.rows_read < self.row_groups.rows() => {
                    return Some(Err(self.damaged("the rows end here, the index promises more".to_owned())));
                }
                Ok(None) => return None,
                Err(panic) => return Some(Err(self.damaged(panic))),
            }
        }
        let row = T::from_array(&self.batch.rows, self.batch.next).map_err(|mismatch| ReadError::Value {
            row_group: self.row_groups.of(self.rows_read),
            row: self.rows_read,
            column: mismatch.path,
            problem: mismatch.problem,
        });
        self.batch.next += 1;
        self.rows_read += 1;
        Some(row)
    }

    fn damaged(&self, problem: String) -> ReadError {
        ReadError::RowGroup { row_group: self.row_groups.of(self.rows_read), row: self.rows_read, problem }
    }
}

impl<T: RowPart> Iterator for ParquetReader<T> {
    type Item = Result<T, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let row = self.read_next();
        // A decoder that failed is not called again.
        self.has_failed = matches!(row, Some(Err(_)));
        row
    }
}

/// Runs the decoder and converts its panic into a text. A decoder that panicked is not called again, so its broken
/// state has no effect.
fn contained<T>(decode: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(decode)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        format!("the file is damaged in a way that the decoder does not survive: {text}")
    })
}

/// Decoded rows, and the index of the next one.
#[derive(Debug)]
struct Batch {
    rows: StructArray,
    next: usize,
}

impl Batch {
    fn new(batch: RecordBatch) -> Self {
        Self { rows: StructArray::from(batch), next: 0 }
    }

    fn is_read(&self) -> bool {
        self.next >= self.rows.len()
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self { rows: StructArray::new_empty_fields(0, None), next: 0 }
    }
}

/// The end of each row group, as a row index of the file.
#[derive(Debug)]
struct RowGroups {
    ends: Vec<u64>,
}

impl RowGroups {
    fn new(lengths: impl Iterator<Item = i64>) -> Self {
        let ends = lengths.scan(0_u64, |end, length| {
            *end = end.saturating_add(u64::try_from(length).unwrap_or(0));
            Some(*end)
        });
        Self { ends: ends.collect() }
    }

    fn rows(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn of(&self, row: u64) -> usize {
        self.ends.partition_point(|&end| end <= row)
    }
}

fn known_columns(expected: &DataType, found: &DataType) -> Vec<usize> {
    let (DataType::Struct(expected), DataType::Struct(found)) = (expected, found) else { return Vec::new() };
    let is_known = |name: &str| expected.find(name).is_some();
    found.iter().enumerate().filter(|(_, field)| is_known(field.name())).map(|(index, _)| index).collect()
}
