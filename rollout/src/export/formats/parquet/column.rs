//! Maps the Rust types of a row to Arrow arrays, and reads them back from arrays of any writer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, OverflowError};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};

use super::scalar::Scalar;

/// The type of a column, or of the values in a list, map or struct.
pub trait Column: Sized {
    /// Whether the type has a value that is null in Parquet.
    const IS_NULLABLE: bool = false;

    /// The Arrow type for writing, which is also required for reading.
    fn data_type() -> DataType;

    /// Returns the values as one array.
    fn to_array<'a>(values: impl Iterator<Item = &'a Self>) -> Result<ArrayRef, ArrowError>
    where
        Self: 'a;

    /// Returns the value at `index`, which is below the array's length.
    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch>;

    /// Returns every value of an array that has the elements of a list.
    fn all_from_array(array: &dyn Array) -> Result<Vec<Self>, Mismatch> {
        let element = |i| Self::from_array(array, i).map_err(|mismatch| mismatch.inside(&format!("[{i}]")));
        (0..array.len()).map(element).collect()
    }

    /// Returns the value for a file without this column: files of earlier rolltap versions lack newer columns. As in
    /// JSON Lines, only a nullable column may be absent.
    fn absent() -> Option<Self> {
        None
    }
}

/// The error that an array does not have a row's type.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The column, then indices, keys and inner fields. Empty until `inside` adds the enclosing struct.
    pub(super) path: String,
    /// The actual and the expected type or value.
    pub(super) problem: String,
}

impl Mismatch {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self { path: String::new(), problem: problem.into() }
    }

    /// Returns the same error with the enclosing struct, list or map in its path.
    pub(super) fn inside(self, field: &str) -> Self {
        let path = match self.path.as_str() {
            "" => field.to_owned(),
            // An index follows the field without a dot.
            index if index.starts_with('[') => format!("{field}{index}"),
            inner => format!("{field}.{inner}"),
        };
        Self { path, ..self }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.path, self.problem)
    }
}

/// Returns the Arrow field of a column.
pub(super) fn field<C: Column>(name: &str) -> Field {
    Field::new(name, C::data_type(), C::IS_NULLABLE)
}

/// Returns the value of the field `name` in row `index` of a struct.
pub(super) fn cell<C: Column>(record: &StructArray, name: &str, index: usize) -> Result<C, Mismatch> {
    match record.column_by_name(name) {
        Some(array) => C::from_array(array, index).map_err(|mismatch| mismatch.inside(name)),
        None => C::absent().ok_or_else(|| missing::<C>().inside(name)),
    }
}

fn missing<C: Column>() -> Mismatch {
    Mismatch::new(format!("missing, {} is expected", C::data_type()))
}

/// Checks whether a file's type can be read as `expected`. Nullability and the names of list elements and map entries
/// may differ, because other writers choose other ones. Unknown fields of structs are ignored.
pub(super) fn compatible(expected: &DataType, found: &DataType) -> Result<(), Mismatch> {
    match (expected, found) {
        (DataType::List(expected), DataType::List(found)) => {
            compatible(expected.data_type(), found.data_type())
        }
        (DataType::Map(expected, _), DataType::Map(found, _)) => {
            match (expected.data_type(), found.data_type()) {
                (DataType::Struct(expected), DataType::Struct(found)) if expected.len() == found.len() => {
                    let mut pairs = expected.iter().zip(found);
                    pairs.try_for_each(|(e, f)| compatible(e.data_type(), f.data_type()))
                }
                (expected, found) => Err(wrong_type(expected, found)),
            }
        }
        (DataType::Struct(expected), DataType::Struct(found)) => {
            expected.iter().try_for_each(|field| field_compatible(field, found))
        }
        _ if expected == found => Ok(()),
        _ => Err(wrong_type(expected, found)),
    }
}

fn field_compatible(expected: &Field, found: &Fields) -> Result<(), Mismatch> {
    let name = expected.name();
    match found.iter().find(|field| field.name() == name) {
        // A file of an earlier version has no column for a newer optional field.
        None if expected.is_nullable() => Ok(()),
        None => Err(Mismatch::new(format!("missing, {} is expected", expected.data_type())).inside(name)),
        Some(found) => compatible(expected.data_type(), found.data_type()).map_err(|m| m.inside(name)),
    }
}

fn wrong_type(expected: &DataType, found: &DataType) -> Mismatch {
    Mismatch::new(format!("holds {found}, {expected} is expected"))
}

pub(super) fn downcast<A: Array + 'static>(array: &dyn Array) -> Result<&A, Mismatch> {
    let found = array.as_any().downcast_ref();
    found.ok_or_else(|| Mismatch::new(format!("holds {}, which is not expected", array.data_type())))
}

pub(super) fn not_null(
    array: &dyn Array,
    index: usize,
    expected: impl FnOnce() -> DataType,
) -> Result<(), Mismatch> {
    if array.is_null(index) {
        Err(Mismatch::new(format!("is null, {} is expected", expected())))
    } else {
        Ok(())
    }
}

impl<S: Scalar> Column for S {
    fn data_type() -> DataType {
        S::data_type()
    }

    fn to_array<'a>(values: impl Iterator<Item = &'a Self>) -> Result<ArrayRef, ArrowError>
    where
        Self: 'a,
    {
        S::all_to_array(values)
    }

    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
        not_null(array, index, S::data_type)?;
        S::from_array(array, index)
    }

    fn all_from_array(array: &dyn Array) -> Result<Vec<Self>, Mismatch> {
        if let Some(values) = S::all_from_array(array) {
            return Ok(values);
        }
        let element = |i| <Self as Column>::from_array(array, i).map_err(|m| m.inside(&format!("[{i}]")));
        (0..array.len()).map(element).collect()
    }
}

impl<S: Scalar> Column for Option<S> {
    // Most lists and all maps are never null: an empty one has the same meaning.
    const IS_NULLABLE: bool = true;

    fn data_type() -> DataType {
        S::data_type()
    }

    fn to_array<'a>(values: impl Iterator<Item = &'a Self>) -> Result<ArrayRef, ArrowError>
    where
        Self: 'a,
    {
        S::to_array(values.map(Option::as_ref))
    }

    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
        if array.is_null(index) { Ok(None) } else { S::from_array(array, index).map(Some) }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<C: Column> Column for Vec<C> {
    fn data_type() -> DataType {
        DataType::List(element::<C>())
    }

    fn to_array<'a>(values: impl Iterator<Item = &'a Self>) -> Result<ArrayRef, ArrowError>
    where
        Self: 'a,
    {
        let lists: Vec<_> = values.collect();
        let offsets = offsets(lists.iter().map(|list| list.len()))?;
        let elements = C::to_array(lists.into_iter().flatten())?;
        Ok(Arc::new(ListArray::try_new(element::<C>(), offsets, elements, None)?))
    }

    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
        let lists: &ListArray = downcast(array)?;
        not_null(array, index, Self::data_type)?;
        C::all_from_array(&lists.value(index))
    }
}

/// A list whose absence differs from an empty list.
impl<C: Column> Column for Option<Vec<C>> {
    const IS_NULLABLE: bool = true;

    fn data_type() -> DataType {
        Vec::<C>::data_type()
    }

    fn to_array<'a>(values: impl Iterator<Item = &'a Self>) -> Result<ArrayRef, ArrowError>
    where
        Self: 'a,
    {
        let lists: Vec<_> = values.collect();
        let nulls: NullBuffer = lists.iter().map(|list| list.is_some()).collect();
        let offsets = offsets(lists.iter().map(|list| list.as_ref().map_or(0, Vec::len)))?;
        let elements = C::to_array(lists.into_iter().flatten().flatten())?;
        Ok(Arc::new(ListArray::try_new(element::<C>(), offsets, elements, Some(nulls))?))
    }

    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
        if array.is_null(index) { Ok(None) } else { Vec::from_array(array, index).map(Some) }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<V: Column> Column for BTreeMap<String, V> {
    fn data_type() -> DataType {
        DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(entry_fields::<V>()), false)), false)
    }

    fn to_array<'a>(values: impl Iterator<Item = &'a Self>) -> Result<ArrayRef, ArrowError>
    where
        Self: 'a,
    {
        let maps: Vec<_> = values.collect();
        let offsets = offsets(maps.iter().map(|map| map.len()))?;
        let keys = <String as Column>::to_array(maps.iter().flat_map(|map| map.keys()))?;
        let values = V::to_array(maps.iter().flat_map(|map| map.values()))?;
        let entries = StructArray::try_new(entry_fields::<V>(), vec![keys, values], None)?;
        let field = Arc::new(Field::new("key_value", entries.data_type().clone(), false));
        Ok(Arc::new(MapArray::try_new(field, offsets, entries, None, false)?))
    }

    fn from_array(array: &dyn Array, index: usize) -> Result<Self, Mismatch> {
        let maps: &MapArray = downcast(array)?;
        not_null(array, index, Self::data_type)?;
        let entries = maps.value(index);
        let [keys, values] = entries.columns() else {
            return Err(Mismatch::new("a map entry has other parts than a key and a value"));
        };
        let mut map = Self::new();
        for entry in 0..entries.len() {
            let key =
                <String as Column>::from_array(keys, entry).map_err(|mismatch| mismatch.inside("key"))?;
            let value =
                V::from_array(values, entry).map_err(|mismatch| mismatch.inside(&format!("[{key:?}]")))?;
            // Parquet allows duplicate keys, but a row has one value per name.
            if map.insert(key.clone(), value).is_some() {
                return Err(Mismatch::new(format!("the key {key:?} stands twice in one map")));
            }
        }
        Ok(map)
    }
}

fn element<C: Column>() -> FieldRef {
    Arc::new(field::<C>("element"))
}

fn entry_fields<V: Column>() -> Fields {
    Fields::from(vec![field::<String>("key"), field::<V>("value")])
}

fn offsets(lengths: impl ExactSizeIterator<Item = usize>) -> Result<OffsetBuffer<i32>, ArrowError> {
    OffsetBuffer::try_from_lengths(lengths).map_err(|_: OverflowError| {
        ArrowError::InvalidArgumentError("a row holds a list of over 2^31 - 1 values".into())
    })
}
