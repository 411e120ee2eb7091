//! One row as levels and values, leaf by leaf, before it enters the file.

use std::any::Any;

use parquet::basic::Type as PhysicalType;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;

/// The reason why Parquet cannot represent a row.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unrepresentable(String);

impl Unrepresentable {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }
}

/// The levels of the next value of a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The repetition level: 0 for the first value of a row, else the depth of the innermost list that continues.
    pub(super) repetition: i16,
    /// The definition level: the number of lists with elements, and of optional values that are present.
    pub(super) definition: i16,
    /// The number of lists and maps around the value.
    pub(super) depth: i16,
}

impl Place {
    /// Returns the place of the value inside an optional one that is present.
    pub(super) fn present(self) -> Self {
        Self { definition: self.definition + 1, ..self }
    }

    /// Returns the place of the first element of a list.
    pub(super) fn first(self) -> Self {
        Self { definition: self.definition + 1, depth: self.depth + 1, ..self }
    }

    /// Returns the place of an element after the element at `self`.
    pub(super) fn next(self) -> Self {
        Self { repetition: self.depth, ..self }
    }
}

/// The levels and values of one row in one leaf.
pub struct LeafBuffer {
    max_definition: i16,
    max_repetition: i16,
    definitions: Vec<i16>,
    /// As long as `definitions`.
    repetitions: Vec<i16>,
    values: Box<dyn Values>,
    /// The size of the values before encoding.
    bytes: usize,
}

impl LeafBuffer {
    pub(super) fn new(descriptor: &ColumnDescriptor) -> Result<Self, ParquetError> {
        Ok(Self {
            max_definition: descriptor.max_def_level(),
            max_repetition: descriptor.max_rep_level(),
            definitions: Vec::new(),
            repetitions: Vec::new(),
            values: values_of(descriptor.physical_type())?,
            bytes: 0,
        })
    }

    pub(super) fn clear(&mut self) {
        self.definitions.clear();
        self.repetitions.clear();
        self.values.clear();
        self.bytes = 0;
    }

    /// Returns the size of the row in bytes, before encoding.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.definitions.len() * size_of::<i16>()
    }

    /// Adds a null or an empty list.
    pub(super) fn push_null(&mut self, at: Place) {
        self.definitions.push(at.definition);
        self.repetitions.push(at.repetition);
    }

    /// Adds levels of `count` values, at least one, which are elements of one list if there are several. `bytes` is
    /// the size of all of them. Returns the vector that the values belong to.
    pub(super) fn push<P: DataType>(
        &mut self,
        at: Place,
        count: usize,
        bytes: usize,
    ) -> Result<&mut Vec<P::T>, Unrepresentable> {
        self.bytes = self.bytes.saturating_add(bytes);
        // The sizes of pages have 32 bits, and a page has whole rows. The messages of a single row can be that long.
        if i32::try_from(self.bytes()).is_err() {
            return Err(Unrepresentable::new("a row holds over 2^31 - 1 bytes of one column"));
        }
        self.repetitions.push(at.repetition);
        self.repetitions.resize(self.definitions.len() + count, at.depth);
        self.definitions.resize(self.definitions.len() + count, at.definition);
        let values: &mut dyn Any = &mut *self.values;
        let values = values
            .downcast_mut::<Buffer<P>>()
            .ok_or_else(|| Unrepresentable::new("the column has another physical type"))?;
        Ok(&mut values.0)
    }

    /// Gives the row to the writer of the leaf's column chunk.
    pub(super) fn write(&self, chunk: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let definitions = (self.max_definition > 0).then_some(self.definitions.as_slice());
        let repetitions = (self.max_repetition > 0).then_some(self.repetitions.as_slice());
        self.values.write(chunk, definitions, repetitions)
    }
}

/// The values of a leaf of any physical type.
trait Values: Any + Send {
    fn clear(&mut self);

    fn write(
        &self,
        chunk: &mut ColumnWriter<'_>,
        definitions: Option<&[i16]>,
        repetitions: Option<&[i16]>,
    ) -> Result<(), ParquetError>;
}

struct Buffer<P: DataType>(Vec<P::T>);

impl<P: DataType> Values for Buffer<P> {
    fn clear(&mut self) {
        self.0.clear();
    }

    fn write(
        &self,
        chunk: &mut ColumnWriter<'_>,
        definitions: Option<&[i16]>,
        repetitions: Option<&[i16]>,
    ) -> Result<(), ParquetError> {
        let Some(chunk) = P::get_column_writer_mut(chunk) else {
            return Err(ParquetError::General("a column chunk has another type than the schema".into()));
        };
        chunk.write_batch(&self.0, definitions, repetitions)?;
        Ok(())
    }
}

fn values_of(physical: PhysicalType) -> Result<Box<dyn Values>, ParquetError> {
    Ok(match physical {
        PhysicalType::BOOLEAN => Box::new(Buffer::<BoolType>(Vec::new())),
        PhysicalType::INT32 => Box::new(Buffer::<Int32Type>(Vec::new())),
        PhysicalType::INT64 => Box::new(Buffer::<Int64Type>(Vec::new())),
        PhysicalType::FLOAT => Box::new(Buffer::<FloatType>(Vec::new())),
        PhysicalType::DOUBLE => Box::new(Buffer::<DoubleType>(Vec::new())),
        PhysicalType::BYTE_ARRAY => Box::new(Buffer::<ByteArrayType>(Vec::new())),
        PhysicalType::INT96 | PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            return Err(ParquetError::General(format!("no column of a row is {physical}")));
        }
    })
}
