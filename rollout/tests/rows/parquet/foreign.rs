//! Parquet files of other writers: the columns of a rolltap file with other levels, types or orders.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Repetition;
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

/// A column of the root: its type, and its leaves in the order of the type.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) schema: TypePtr,
    pub(crate) leaves: Vec<Leaf>,
}

/// The levels and values of a leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf {
    pub(crate) definitions: Vec<i16>,
    pub(crate) repetitions: Vec<i16>,
    pub(crate) values: Vec<Value>,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Bool(bool),
    Int32(i32),
    Int64(i64),
    Float(f32),
    Double(f64),
    Text(ByteArray),
}

impl Column {
    /// Returns a column of type `schema` (a field in the language of Parquet schemas) without lists.
    pub(crate) fn new(schema: &str, values: Vec<Option<Value>>) -> Self {
        let schema = field(schema);
        let is_optional = schema.get_basic_info().repetition() == Repetition::OPTIONAL;
        let leaf = Leaf {
            definitions: values.iter().map(|value| i16::from(is_optional && value.is_some())).collect(),
            repetitions: vec![0; values.len()],
            values: values.into_iter().flatten().collect(),
        };
        Self { schema, leaves: vec![leaf] }
    }

    /// Returns the same values in a column that may be null.
    pub(crate) fn optional(mut self) -> Self {
        if self.schema.get_basic_info().repetition() == Repetition::OPTIONAL {
            return self;
        }
        self.schema = Arc::new(changed(&self.schema, Repetition::OPTIONAL, |fields| fields.to_vec()));
        self.leaves.iter_mut().flat_map(|leaf| &mut leaf.definitions).for_each(|level| *level += 1);
        self
    }

    /// Returns the same levels and values with another type.
    pub(crate) fn with_schema(self, schema: &str) -> Self {
        Self { schema: field(schema), ..self }
    }
}

/// Returns the type of a field, in the language of Parquet schemas.
fn field(schema: &str) -> TypePtr {
    let root = parse_message_type(&format!("message root {{ {schema} }}")).unwrap();
    Arc::clone(&root.get_fields()[0])
}

/// Returns a type with another repetition and, if it is a group, other fields.
pub(crate) fn changed(
    schema: &Type,
    repetition: Repetition,
    fields: impl FnOnce(&[TypePtr]) -> Vec<TypePtr>,
) -> Type {
    let info = schema.get_basic_info();
    match schema {
        Type::PrimitiveType { physical_type, .. } => {
            Type::primitive_type_builder(schema.name(), *physical_type)
                .with_repetition(repetition)
                .with_converted_type(info.converted_type())
                .with_logical_type(info.logical_type_ref().cloned())
                .build()
        }
        Type::GroupType { fields: old, .. } => Type::group_type_builder(schema.name())
            .with_repetition(repetition)
            .with_converted_type(info.converted_type())
            .with_logical_type(info.logical_type_ref().cloned())
            .with_fields(fields(old))
            .build(),
    }
    .unwrap()
}

/// Returns the columns of a file with one row group.
pub(crate) fn columns(file: &Bytes) -> Vec<Column> {
    let file = SerializedFileReader::new(file.clone()).unwrap();
    let schema = file.metadata().file_metadata().schema_descr();
    let rows = usize::try_from(file.metadata().file_metadata().num_rows()).unwrap();
    let chunks = file.get_row_group(0).unwrap();
    let fields = schema.root_schema().get_fields();
    let mut columns: Vec<_> =
        fields.iter().map(|field| Column { schema: Arc::clone(field), leaves: Vec::new() }).collect();
    for leaf in 0..schema.num_columns() {
        let chunk = chunks.get_column_reader(leaf).unwrap();
        columns[schema.get_column_root_idx(leaf)].leaves.push(read(chunk, rows));
    }
    columns
}

fn read(chunk: ColumnReader, rows: usize) -> Leaf {
    let mut leaf = Leaf::default();
    macro_rules! read {
        ($chunk:ident, $value:ident) => {{
            let mut values = Vec::new();
            let levels = (&mut leaf.definitions, &mut leaf.repetitions);
            let (_, _, read) =
                $chunk.read_records(rows, Some(levels.0), Some(levels.1), &mut values).unwrap();
            // The decoder leaves out levels that can only be 0.
            leaf.definitions.resize(read, 0);
            leaf.repetitions.resize(read, 0);
            leaf.values = values.into_iter().map(Value::$value).collect();
        }};
    }
    match chunk {
        ColumnReader::BoolColumnReader(mut chunk) => read!(chunk, Bool),
        ColumnReader::Int32ColumnReader(mut chunk) => read!(chunk, Int32),
        ColumnReader::Int64ColumnReader(mut chunk) => read!(chunk, Int64),
        ColumnReader::FloatColumnReader(mut chunk) => read!(chunk, Float),
        ColumnReader::DoubleColumnReader(mut chunk) => read!(chunk, Double),
        ColumnReader::ByteArrayColumnReader(mut chunk) => read!(chunk, Text),
        _ => panic!("no column of a row has this physical type"),
    }
    leaf
}

/// Writes the columns into row groups of `row_groups` rows, with the dictionaries and statistics of a usual writer.
pub(crate) fn file(columns: &[Column], row_groups: &[usize]) -> Bytes {
    let fields = columns.iter().map(|column| Arc::clone(&column.schema)).collect();
    let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields).build().unwrap());
    let descriptor = SchemaDescriptor::new(Arc::clone(&schema));
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut start = 0;
    for &rows in row_groups {
        let mut row_group = writer.next_row_group().unwrap();
        let leaves = columns.iter().flat_map(|column| &column.leaves);
        for (leaf, column) in leaves.zip(descriptor.columns()) {
            let mut chunk = row_group.next_column().unwrap().unwrap();
            let leaf = rows_of(leaf, start, rows, column.max_def_level());
            write(&leaf, chunk.untyped());
            chunk.close().unwrap();
        }
        row_group.close().unwrap();
        start += rows;
    }
    writer.into_inner().unwrap().into()
}

/// Returns `count` rows of a leaf.
fn rows_of(leaf: &Leaf, start: usize, count: usize, max_definition: i16) -> Leaf {
    let starts = leaf.repetitions.iter().enumerate().filter(|(_, level)| **level == 0).map(|(i, _)| i);
    let starts: Vec<_> = starts.chain([leaf.repetitions.len()]).collect();
    let levels = starts[start]..starts[start + count];
    let present = |levels: &[i16]| levels.iter().filter(|&&level| level == max_definition).count();
    let first = present(&leaf.definitions[..levels.start]);
    let values = first..first + present(&leaf.definitions[levels.clone()]);
    Leaf {
        definitions: leaf.definitions[levels.clone()].to_vec(),
        repetitions: leaf.repetitions[levels].to_vec(),
        values: leaf.values[values].to_vec(),
    }
}

fn write(leaf: &Leaf, chunk: &mut ColumnWriter<'_>) {
    macro_rules! write {
        ($chunk:ident, $value:ident) => {{
            let values: Vec<_> = leaf
                .values
                .iter()
                .map(|value| match value {
                    Value::$value(value) => value.clone(),
                    _ => panic!("{value:?} is not {}", stringify!($value)),
                })
                .collect();
            let (definitions, repetitions) = (&leaf.definitions, &leaf.repetitions);
            $chunk.write_batch(&values, Some(definitions), Some(repetitions)).unwrap();
        }};
    }
    match chunk {
        ColumnWriter::BoolColumnWriter(chunk) => write!(chunk, Bool),
        ColumnWriter::Int32ColumnWriter(chunk) => write!(chunk, Int32),
        ColumnWriter::Int64ColumnWriter(chunk) => write!(chunk, Int64),
        ColumnWriter::FloatColumnWriter(chunk) => write!(chunk, Float),
        ColumnWriter::DoubleColumnWriter(chunk) => write!(chunk, Double),
        ColumnWriter::ByteArrayColumnWriter(chunk) => write!(chunk, Text),
        _ => panic!("no column of a row has this physical type"),
    }
}
