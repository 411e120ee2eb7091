//! The leaves of a file: columns of scalar values, with definition and repetition levels.

use std::any::Any;

use parquet::basic::Type as PhysicalType;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;

/// One leaf of a file, with the decoded levels and values of a few rows.
///
/// Each level has a value if its definition level is the maximal one. Other levels are nulls and empty lists.
pub struct Leaf {
    /// The index of the column in the file.
    column: usize,
    max_definition: i16,
    max_repetition: i16,
    definitions: Vec<i16>,
    /// As long as `definitions`.
    repetitions: Vec<i16>,
    values: Box<dyn Values>,
    /// The index of the next level.
    level: usize,
    /// The index of the next value.
    value: usize,
}

impl Leaf {
    /// Returns the leaf of column `column`, or `None` if no row has values of its physical type.
    pub(super) fn new(column: usize, descriptor: &ColumnDescriptor) -> Option<Self> {
        Some(Self {
            column,
            max_definition: descriptor.max_def_level(),
            max_repetition: descriptor.max_rep_level(),
            definitions: Vec::new(),
            repetitions: Vec::new(),
            values: values_of(descriptor.physical_type())?,
            level: 0,
            value: 0,
        })
    }

    pub(super) fn column(&self) -> usize {
        self.column
    }

    /// Continues with the column chunk of another row group.
    pub(super) fn open(&mut self, chunk: ColumnReader) -> Result<(), ParquetError> {
        self.values.open(chunk)
    }

    /// Replaces the decoded rows by the next ones, at most `rows`, and returns their number.
    pub(super) fn decode(&mut self, rows: usize) -> Result<usize, ParquetError> {
        self.definitions.clear();
        self.repetitions.clear();
        (self.level, self.value) = (0, 0);
        let decoded = self.values.decode(rows, &mut self.definitions, &mut self.repetitions)?;
        // The decoder leaves out levels that can only be 0.
        if self.max_definition == 0 {
            self.definitions.resize(decoded.levels, 0);
        }
        if self.max_repetition == 0 {
            self.repetitions.resize(decoded.levels, 0);
        }
        self.check(&decoded)?;
        Ok(decoded.rows)
    }

    /// Checks what the rest of the reader relies on. Levels of a damaged file can be anything that their bits allow.
    fn check(&self, decoded: &Decoded) -> Result<(), ParquetError> {
        let is_consistent = self.definitions.len() == decoded.levels
            && self.repetitions.len() == decoded.levels
            && are_between_0_and(self.max_definition, &self.definitions)
            && are_between_0_and(self.max_repetition, &self.repetitions)
            && self.values.len() == decoded.values
            && self.definitions.iter().filter(|&&level| level == self.max_definition).count()
                == decoded.values
            && self.repetitions.first().is_none_or(|&first| first == 0);
        if is_consistent {
            Ok(())
        } else {
            Err(ParquetError::General(format!("the levels of column {} are not possible", self.column)))
        }
    }

    /// Returns the definition level at the cursor, or `None` after the last decoded row.
    pub(super) fn definition(&self) -> Option<i16> {
        self.definitions.get(self.level).copied()
    }

    /// Returns the repetition level at the cursor, or `None` after the last decoded row.
    pub(super) fn repetition(&self) -> Option<i16> {
        self.repetitions.get(self.level).copied()
    }

    /// Moves the cursor over a level without a value: a null or an empty list.
    pub(super) fn skip(&mut self) {
        self.level += 1;
    }

    /// Returns the value at the cursor, or `None` if it is null, and moves the cursor.
    pub(super) fn take<P: DataType>(&mut self) -> Option<&P::T> {
        let is_present = self.definition() == Some(self.max_definition);
        self.level += 1;
        if !is_present {
            return None;
        }
        let value = self.value;
        self.value += 1;
        self.values::<P>().get(value)
    }

    /// Returns the values of the whole list that the cursor is in and moves the cursor to its end, or returns `None`
    /// if one of the elements is null. `repetition` is the list's repetition level, and the leaf is its element.
    pub(super) fn take_list<P: DataType>(&mut self, repetition: i16) -> Option<&[P::T]> {
        let later = self.repetitions.get(self.level + 1..)?;
        let length = 1 + later.iter().take_while(|&&level| level == repetition).count();
        let has_nulls = self.values.len() < self.definitions.len();
        if has_nulls {
            let definitions = self.definitions.get(self.level..)?.get(..length)?;
            if definitions.iter().any(|&level| level != self.max_definition) {
                return None;
            }
        }
        let value = self.value;
        self.level += length;
        self.value += length;
        self.values::<P>().get(value..)?.get(..length)
    }

    fn values<P: DataType>(&self) -> &[P::T] {
        let values: &dyn Any = &*self.values;
        values.downcast_ref::<Chunk<P>>().map_or(&[], |chunk| chunk.values.as_slice())
    }
}

/// Token lists are long, so this is a fold, which the compiler vectorises, and no search.
fn are_between_0_and(max: i16, levels: &[i16]) -> bool {
    let extremes = levels.iter().fold((0, 0), |(low, high), &level| (level.min(low), level.max(high)));
    extremes.0 >= 0 && extremes.1 <= max
}

/// The numbers of what was decoded.
struct Decoded {
    rows: usize,
    levels: usize,
    values: usize,
}

/// The decoder and the decoded values of a column of any physical type.
trait Values: Any + Send {
    fn open(&mut self, chunk: ColumnReader) -> Result<(), ParquetError>;

    /// Decodes at most `rows` rows. Levels whose maximum is 0 are left out.
    fn decode(
        &mut self,
        rows: usize,
        definitions: &mut Vec<i16>,
        repetitions: &mut Vec<i16>,
    ) -> Result<Decoded, ParquetError>;

    /// The number of decoded values.
    fn len(&self) -> usize;
}

struct Chunk<P: DataType> {
    decoder: Option<ColumnReaderImpl<P>>,
    values: Vec<P::T>,
}

impl<P: DataType> Values for Chunk<P> {
    fn open(&mut self, chunk: ColumnReader) -> Result<(), ParquetError> {
        self.decoder = P::get_column_reader(chunk);
        match self.decoder {
            Some(_) => Ok(()),
            None => Err(ParquetError::General("a row group has another type than the schema".into())),
        }
    }

    fn decode(
        &mut self,
        rows: usize,
        definitions: &mut Vec<i16>,
        repetitions: &mut Vec<i16>,
    ) -> Result<Decoded, ParquetError> {
        self.values.clear();
        let Some(decoder) = &mut self.decoder else { return Ok(Decoded { rows: 0, levels: 0, values: 0 }) };
        let (rows, values, levels) =
            decoder.read_records(rows, Some(definitions), Some(repetitions), &mut self.values)?;
        Ok(Decoded { rows, levels, values })
    }

    fn len(&self) -> usize {
        self.values.len()
    }
}

fn values_of(physical: PhysicalType) -> Option<Box<dyn Values>> {
    fn chunk<P: DataType>() -> Option<Box<dyn Values>> {
        Some(Box::new(Chunk::<P> { decoder: None, values: Vec::new() }))
    }
    match physical {
        PhysicalType::BOOLEAN => chunk::<BoolType>(),
        PhysicalType::INT32 => chunk::<Int32Type>(),
        PhysicalType::INT64 => chunk::<Int64Type>(),
        PhysicalType::FLOAT => chunk::<FloatType>(),
        PhysicalType::DOUBLE => chunk::<DoubleType>(),
        PhysicalType::BYTE_ARRAY => chunk::<ByteArrayType>(),
        PhysicalType::INT96 | PhysicalType::FIXED_LEN_BYTE_ARRAY => None,
    }
}
