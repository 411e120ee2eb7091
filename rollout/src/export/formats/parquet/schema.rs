//! Builds the Parquet types of columns, and compares and names the types of files.

use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::{BasicTypeInfo, Type};

/// The type of a scalar value, with Arrow's names. Different annotations of a Parquet file can mean the same type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarType {
    Boolean,
    Int32,
    Int64,
    UInt8,
    Float32,
    Float64,
    Utf8,
    /// Nanoseconds in UTC.
    Timestamp,
}

impl ScalarType {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Boolean => "Boolean",
            Self::Int32 => "Int32",
            Self::Int64 => "Int64",
            Self::UInt8 => "UInt8",
            Self::Float32 => "Float32",
            Self::Float64 => "Float64",
            Self::Utf8 => "Utf8",
            Self::Timestamp => "Timestamp(ns, \"UTC\")",
        }
    }

    /// Returns the Parquet type of a column.
    pub(super) fn column(self, name: &str, repetition: Repetition) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            Self::Boolean => (PhysicalType::BOOLEAN, None),
            Self::Int32 => (PhysicalType::INT32, None),
            Self::Int64 => (PhysicalType::INT64, None),
            Self::UInt8 => (PhysicalType::INT32, Some(LogicalType::integer(8, false))),
            Self::Float32 => (PhysicalType::FLOAT, None),
            Self::Float64 => (PhysicalType::DOUBLE, None),
            Self::Utf8 => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Timestamp => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    }

    /// Returns the scalar type of a file's column, or `None` if a row has no such values.
    fn of(physical: PhysicalType, info: &BasicTypeInfo) -> Option<Self> {
        let (logical, converted) = (info.logical_type_ref(), info.converted_type());
        match (physical, logical, converted) {
            (PhysicalType::BOOLEAN, ..) => Some(Self::Boolean),
            (PhysicalType::FLOAT, ..) => Some(Self::Float32),
            (PhysicalType::DOUBLE, ..) => Some(Self::Float64),
            (PhysicalType::INT32, Some(LogicalType::Integer(int)), _) => {
                match (int.bit_width, int.is_signed) {
                    (32, true) => Some(Self::Int32),
                    (8, false) => Some(Self::UInt8),
                    _ => None,
                }
            }
            (PhysicalType::INT32, None, ConvertedType::NONE | ConvertedType::INT_32) => Some(Self::Int32),
            (PhysicalType::INT32, None, ConvertedType::UINT_8) => Some(Self::UInt8),
            (PhysicalType::INT64, Some(LogicalType::Integer(int)), _)
                if int.bit_width == 64 && int.is_signed =>
            {
                Some(Self::Int64)
            }
            (PhysicalType::INT64, None, ConvertedType::NONE | ConvertedType::INT_64) => Some(Self::Int64),
            (PhysicalType::INT64, Some(LogicalType::Timestamp(time)), _)
                if time.is_adjusted_to_u_t_c && time.unit == TimeUnit::NANOS =>
            {
                Some(Self::Timestamp)
            }
            (PhysicalType::BYTE_ARRAY, Some(LogicalType::String | LogicalType::Json), _)
            | (PhysicalType::BYTE_ARRAY, None, ConvertedType::UTF8 | ConvertedType::JSON) => Some(Self::Utf8),
            _ => None,
        }
    }
}

/// The kind of a Parquet type, apart from its own name and repetition.
#[derive(Debug)]
pub(super) enum Kind<'a> {
    Scalar(ScalarType),
    List(Element<'a>),
    Map {
        key: &'a Type,
        value: &'a Type,
    },
    Struct(&'a [Arc<Type>]),
    /// A scalar type or an annotation that no row has.
    Other,
}

/// The element of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    pub(super) schema: &'a Type,
    /// Whether the repeated node is the element itself. Lists of older writers have two levels instead of three.
    pub(super) is_repeated: bool,
}

impl<'a> Kind<'a> {
    pub(super) fn of(schema: &'a Type) -> Self {
        match schema {
            Type::PrimitiveType { basic_info, physical_type, .. } => {
                ScalarType::of(*physical_type, basic_info).map_or(Self::Other, Self::Scalar)
            }
            Type::GroupType { basic_info, fields } => match basic_info.converted_type() {
                ConvertedType::LIST => list_element(schema.name(), fields).map_or(Self::Other, Self::List),
                ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => {
                    map_entry(fields).map_or(Self::Other, |(key, value)| Self::Map { key, value })
                }
                _ => Self::Struct(fields),
            },
        }
    }
}

/// Applies the rules of the Parquet format for lists with two and with three levels.
fn list_element<'a>(list: &str, fields: &'a [Arc<Type>]) -> Option<Element<'a>> {
    let [repeated] = fields else { return None };
    if repetition(repeated) != Repetition::REPEATED {
        return None;
    }
    let itself = Element { schema: repeated, is_repeated: true };
    let Type::GroupType { basic_info, fields } = repeated.as_ref() else { return Some(itself) };
    let [element] = fields.as_slice() else { return Some(itself) };
    let has_name_of_element = repeated.name() == "array" || repeated.name() == format!("{list}_tuple");
    let is_annotated = basic_info.converted_type() == ConvertedType::LIST;
    if has_name_of_element && !is_annotated && repetition(element) != Repetition::REPEATED {
        return Some(itself);
    }
    Some(Element { schema: element, is_repeated: false })
}

fn map_entry(fields: &[Arc<Type>]) -> Option<(&Type, &Type)> {
    let [entry] = fields else { return None };
    let Type::GroupType { fields, .. } = entry.as_ref() else { return None };
    match fields.as_slice() {
        [key, value] if repetition(entry) == Repetition::REPEATED => Some((key, value)),
        _ => None,
    }
}

/// Returns the repetition of a type. The root of a schema has none and is required.
pub(super) fn repetition(schema: &Type) -> Repetition {
    let info = schema.get_basic_info();
    if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED }
}

/// Returns the number of columns below a node of a schema.
pub(super) fn leaves(schema: &Type) -> usize {
    match schema {
        Type::PrimitiveType { .. } => 1,
        Type::GroupType { fields, .. } => fields.iter().map(|field| leaves(field)).sum(),
    }
}

/// Returns the type of a list with required or optional elements.
pub(super) fn list(name: &str, repetition: Repetition, element: Type) -> Result<Type, ParquetError> {
    let repeated = group("list", Repetition::REPEATED, None, vec![element])?;
    group(name, repetition, Some(LogicalType::List), vec![repeated])
}

/// Returns the type of a map.
pub(super) fn map(name: &str, repetition: Repetition, key: Type, value: Type) -> Result<Type, ParquetError> {
    let entry = group("key_value", Repetition::REPEATED, None, vec![key, value])?;
    group(name, repetition, Some(LogicalType::Map), vec![entry])
}

/// Returns the type of a group of fields.
pub(super) fn group(
    name: &str,
    repetition: Repetition,
    annotation: Option<LogicalType>,
    fields: Vec<Type>,
) -> Result<Type, ParquetError> {
    Type::group_type_builder(name)
        .with_repetition(repetition)
        .with_logical_type(annotation)
        .with_fields(fields.into_iter().map(Arc::new).collect())
        .build()
}

/// Returns the root of a file's schema.
pub(super) fn root(columns: Vec<Arc<Type>>) -> Result<Type, ParquetError> {
    // Files of all versions of rolltap have this name. Readers ignore it.
    Type::group_type_builder("arrow_schema").with_fields(columns).build()
}

/// Returns a type for an error message, with Arrow's names for scalars.
pub(super) fn described(schema: &Type) -> String {
    match Kind::of(schema) {
        Kind::Scalar(scalar) => scalar.name().to_owned(),
        Kind::List(element) => format!("List({})", described(element.schema)),
        Kind::Map { key, value } => format!("Map({}, {})", described(key), described(value)),
        Kind::Struct(fields) => {
            let names: Vec<_> = fields.iter().map(|field| field.name()).collect();
            format!("Struct({})", names.join(", "))
        }
        Kind::Other => other(schema),
    }
}

fn other(schema: &Type) -> String {
    let info = schema.get_basic_info();
    let annotation = match (info.logical_type_ref(), info.converted_type()) {
        (Some(logical), _) => format!(" ({logical:?})"),
        (None, ConvertedType::NONE) => String::new(),
        (None, converted) => format!(" ({converted})"),
    };
    match schema {
        Type::PrimitiveType { physical_type, .. } => format!("{physical_type}{annotation}"),
        Type::GroupType { .. } => format!("a group{annotation}"),
    }
}
