//! The row group that is being written: its column chunks, encoded and compressed in memory.
//!
//! A file has the column chunks of a row group one after the other, but rows arrive with all columns. Each column
//! therefore has a writer with its own buffer of pages, and the buffers are copied into the file when the row group is
//! full. So the memory is that of the encoded row group, plus one page per column that is not yet encoded.

use std::io::Write;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnWriter, get_column_writer};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::shredded::LeafBuffer;

/// The column chunks of the rows that are not yet in the file.
pub(super) struct RowGroup {
    chunks: Vec<Chunk>,
    rows: usize,
}

impl RowGroup {
    pub(super) fn new<W: Write + Send>(file: &SerializedFileWriter<W>) -> Self {
        let columns = file.schema_descr().columns().iter();
        let chunks = columns.map(|column| Chunk::new(Arc::clone(column), Arc::clone(file.properties())));
        Self { chunks: chunks.collect(), rows: 0 }
    }

    /// Adds one row, which has a buffer for each column.
    pub(super) fn write(&mut self, row: &[LeafBuffer]) -> Result<(), ParquetError> {
        for (chunk, leaf) in self.chunks.iter_mut().zip(row) {
            chunk.write(leaf)?;
        }
        self.rows += 1;
        Ok(())
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the size in bytes: compressed for complete pages, and before encoding for the last page of each column.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.complete_bytes + chunk.open_bytes).sum()
    }

    /// Copies the column chunks into the file.
    pub(super) fn finish<W: Write + Send>(
        self,
        file: &mut SerializedFileWriter<W>,
    ) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        for chunk in self.chunks {
            let metadata = chunk.writer.close()?;
            let pages = Bytes::from(take(chunk.pages.lock().inner_mut()));
            group.append_column(&pages, metadata)?;
        }
        group.close()?;
        Ok(())
    }
}

/// A column chunk and the writer that encodes it.
struct Chunk {
    writer: ColumnWriter<'static>,
    pages: Pages,
    /// The size of the complete pages.
    complete_bytes: usize,
    /// The size of the values since the last complete page, before encoding.
    open_bytes: usize,
}

impl Chunk {
    fn new(column: ColumnDescPtr, properties: WriterPropertiesPtr) -> Self {
        let pages = Pages::default();
        let writer = get_column_writer(column, properties, Box::new(pages.clone()));
        Self { writer, pages, complete_bytes: 0, open_bytes: 0 }
    }

    fn write(&mut self, leaf: &LeafBuffer) -> Result<(), ParquetError> {
        leaf.write(&mut self.writer)?;
        self.open_bytes += leaf.bytes();
        let complete_bytes = self.pages.lock().bytes_written();
        if complete_bytes > self.complete_bytes {
            // The writer completes a page after a row, so no values remain outside.
            self.open_bytes = 0;
            self.complete_bytes = complete_bytes;
        }
        Ok(())
    }
}

/// The complete pages of a column chunk in memory, which the column's writer and its row group share.
#[derive(Clone)]
struct Pages(Arc<Mutex<TrackedWrite<Vec<u8>>>>);

impl Pages {
    fn lock(&self) -> MutexGuard<'_, TrackedWrite<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Pages {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(TrackedWrite::new(Vec::new()))))
    }
}

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec, ParquetError> {
        SerializedPageWriter::new(&mut *self.lock()).write_page(page)
    }

    fn close(&mut self) -> Result<(), ParquetError> {
        SerializedPageWriter::new(&mut *self.lock()).close()
    }
}
