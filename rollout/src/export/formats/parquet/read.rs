//! Reads rows from a Parquet file, which may be foreign or damaged.
//!
//! The Parquet decoder panics on some damaged pages. A file of unknown origin must not end a proxy or a job. For this
//! reason each call of the decoder is [`contained`], and its panic becomes an ordinary error.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};

use super::leaf::Leaf;
use super::mismatch::Mismatch;
use super::node::{Node, find};
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
    /// A column is compressed by an algorithm that is not read.
    #[error(
        "column {column} is compressed with {codec}; no compression, SNAPPY and ZSTD are read: write the file again with \
         one of these"
    )]
    Compression {
        /// The column, with inner fields joined by dots.
        column: String,
        /// The name of the algorithm.
        codec: String,
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
pub struct ParquetReader<T = RolloutRow> {
    file: Box<dyn FileReader>,
    row: Node,
    leaves: Vec<Leaf>,
    row_groups: RowGroups,
    /// The number of row groups that were opened.
    opened: usize,
    /// The number of rows that are decoded, counted from the start of the file.
    rows_decoded: u64,
    rows_read: u64,
    has_failed: bool,
    part: PhantomData<T>,
}

impl<T> fmt::Debug for ParquetReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("ParquetReader");
        text.field("row_groups", &self.row_groups).field("rows_read", &self.rows_read).finish_non_exhaustive()
    }
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
        let open = || {
            let expected = T::schema("row")?;
            let file = SerializedFileReader::new(input)?;
            let found = find(&expected, file.metadata().file_metadata().schema_descr());
            Ok::<_, ParquetError>((file, found))
        };
        let (file, found) = contained(open).unwrap_or_else(|panic| Err(ParquetError::General(panic)))?;
        let (row, leaves) = found.map_err(|m| ReadError::Schema { column: m.path, problem: m.problem })?;
        check_compression(file.metadata(), &leaves)?;
        let row_groups = RowGroups::new(file.metadata().row_groups().iter().map(|group| group.num_rows()));
        Ok(Self {
            file: Box::new(file),
            row,
            leaves,
            row_groups,
            opened: 0,
            rows_decoded: 0,
            rows_read: 0,
            has_failed: false,
            part: PhantomData,
        })
    }

    /// Opens a file like [`Self::of_parts`], at the first row of the row group that contains a row. The row groups before
    /// are not read.
    pub fn of_parts_from(input: impl ChunkReader + 'static, row: u64) -> Result<Self, ReadError> {
        let reader = Self::of_parts(input)?;
        let row_group = reader.row_groups.of(row);
        let start = row_group.checked_sub(1).map_or(0, |before| reader.row_groups.end(before));
        Ok(Self { rows_decoded: start, rows_read: start, ..reader })
    }

    /// Returns the index of the next row in the file.
    pub fn next_row(&self) -> u64 {
        self.rows_read
    }

    fn read_next(&mut self) -> Option<Result<T, ReadError>> {
        if self.rows_read == self.rows_decoded {
            if self.rows_read == self.row_groups.rows() {
                return None;
            }
            let decoded = contained(|| self.decode()).map(|rows| rows.map_err(|error| error.to_string()));
            if let Err(problem) = decoded.flatten() {
                return Some(Err(self.damaged(problem)));
            }
        }
        let row = T::assemble(&self.row, &mut self.leaves).and_then(|row| self.complete(row));
        let row = row.map_err(|mismatch| ReadError::Value {
            row_group: self.row_groups.of(self.rows_read),
            row: self.rows_read,
            column: mismatch.path,
            problem: mismatch.problem,
        });
        self.rows_read += 1;
        Some(row)
    }

    /// Decodes the next rows of every leaf, at least one.
    fn decode(&mut self) -> Result<(), ParquetError> {
        let row_group = self.row_groups.of(self.rows_read);
        if row_group >= self.opened {
            let chunks = self.file.get_row_group(row_group)?;
            for leaf in &mut self.leaves {
                leaf.open(chunks.get_column_reader(leaf.column())?)?;
            }
            self.opened = row_group + 1;
        }
        let left = self.row_groups.end(row_group).saturating_sub(self.rows_read);
        let rows = usize::try_from(left).map_or(ROWS_AT_A_TIME, |left| left.min(ROWS_AT_A_TIME));
        for leaf in &mut self.leaves {
            // A truncated column ends the decoder without an error, so the row count of the index decides.
            if leaf.decode(rows)? != rows {
                return Err(ParquetError::General("the rows end here, the index promises more".to_owned()));
            }
        }
        self.rows_decoded += rows as u64;
        Ok(())
    }

    /// Checks that every leaf is at the end of the row, which a damaged file can prevent.
    fn complete(&self, row: T) -> Result<T, Mismatch> {
        let is_at_end = |leaf: &Leaf| leaf.repetition().is_none_or(|level| level == 0);
        if self.leaves.iter().all(is_at_end) { Ok(row) } else { Err(Mismatch::levels()) }
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

/// Fails if a column that is read has a compression that is not compiled in.
fn check_compression(file: &ParquetMetaData, leaves: &[Leaf]) -> Result<(), ReadError> {
    for group in file.row_groups() {
        let columns = leaves.iter().filter_map(|leaf| group.columns().get(leaf.column()));
        for column in columns {
            let codec = column.compression();
            if !matches!(codec, Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)) {
                // The text also has the level, which a file does not store.
                let codec = codec.to_string().split('(').next().unwrap_or_default().to_owned();
                return Err(ReadError::Compression { column: column.column_path().string(), codec });
            }
        }
    }
    Ok(())
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

    /// The index of the first row after a row group.
    fn end(&self, row_group: usize) -> u64 {
        self.ends.get(row_group).copied().unwrap_or(0)
    }

    /// The row group of a row.
    fn of(&self, row: u64) -> usize {
        self.ends.partition_point(|&end| end <= row)
    }
}
