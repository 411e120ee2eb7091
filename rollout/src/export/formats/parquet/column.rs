//! Maps the Rust types of a row to columns of Parquet, and reads them back from files of any writer.
//!
//! A row is split into leaves, and put together again, by the Dremel algorithm: a value of a leaf has a repetition
//! level, which is the depth of the list that it continues, and a definition level, which counts the lists and optional
//! values around it that are present.

use std::collections::BTreeMap;

use parquet::basic::Repetition;
use parquet::errors::ParquetError;
use parquet::schema::types::Type;

use super::leaf::Leaf;
use super::mismatch::Mismatch;
use super::node::Node;
use super::scalar::Scalar;
use super::schema;
use super::shredded::{LeafBuffer, Place, Unrepresentable};

/// The type of a column, or of the values in a list, map or struct.
pub trait Column: Sized {
    /// The number of leaves that a value is written to.
    const LEAVES: usize;

    /// Whether the type has a value that is null in Parquet.
    const REPETITION: Repetition = Repetition::REQUIRED;

    /// The Parquet type for writing, which is also required for reading.
    fn schema(name: &str) -> Result<Type, ParquetError> {
        Self::schema_of(name, Self::REPETITION)
    }

    /// The Parquet type with another repetition.
    fn schema_of(name: &str, repetition: Repetition) -> Result<Type, ParquetError>;

    /// Adds the value to its leaves, of which there are [`Self::LEAVES`].
    fn shred(&self, at: Place, leaves: &mut [LeafBuffer]) -> Result<(), Unrepresentable>;

    /// Adds the elements of a list, at least one, to their leaves. `at` is the place of the first one.
    fn shred_all(values: &[Self], at: Place, leaves: &mut [LeafBuffer]) -> Result<(), Unrepresentable> {
        let places = std::iter::once(at).chain(std::iter::repeat(at.next()));
        values.iter().zip(places).try_for_each(|(value, at)| value.shred(at, leaves))
    }

    /// Returns the value at the cursors of `node`'s leaves and moves the cursors.
    fn assemble(node: &Node, leaves: &mut [Leaf]) -> Result<Self, Mismatch>;

    /// Returns the elements of a list that is not empty.
    fn assemble_all(list: &Node, leaves: &mut [Leaf]) -> Result<Vec<Self>, Mismatch> {
        one_by_one(list, leaves)
    }

    /// Returns the value for a file without this column: files of earlier rolltap versions lack newer columns. As in
    /// JSON Lines, only a nullable column may be absent.
    fn absent() -> Option<Self> {
        None
    }
}

fn one_by_one<C: Column>(list: &Node, leaves: &mut [Leaf]) -> Result<Vec<C>, Mismatch> {
    let element = list.part(0)?;
    let mut values = Vec::new();
    // Every element takes a level of every leaf, so the loop ends with the decoded levels.
    loop {
        let index = values.len();
        let value = C::assemble(element, leaves).map_err(|m| m.inside(&format!("[{index}]")))?;
        values.push(value);
        if !list.has_another(leaves)? {
            return Ok(values);
        }
    }
}

/// Returns the value of a struct's field, which the file may not have.
pub(super) fn assemble_field<C: Column>(
    node: Option<&Node>,
    name: &str,
    leaves: &mut [Leaf],
) -> Result<C, Mismatch> {
    match node {
        Some(node) => C::assemble(node, leaves).map_err(|mismatch| mismatch.inside(name)),
        None => C::absent().ok_or_else(|| Mismatch::new("missing").inside(name)),
    }
}

/// Adds a value to the first leaves, and returns the other ones.
pub(super) fn shred_field<'a, C: Column>(
    value: &C,
    at: Place,
    leaves: &'a mut [LeafBuffer],
) -> Result<&'a mut [LeafBuffer], Unrepresentable> {
    let too_few = || Unrepresentable::new("the file has too few columns");
    let (own, others) = leaves.split_at_mut_checked(C::LEAVES).ok_or_else(too_few)?;
    value.shred(at, own)?;
    Ok(others)
}

fn push_nulls(at: Place, leaves: &mut [LeafBuffer]) {
    leaves.iter_mut().for_each(|leaf| leaf.push_null(at));
}

/// Fails if the value at the cursor is null.
pub(super) fn not_null<C: Column>(node: &Node, leaves: &mut [Leaf]) -> Result<(), Mismatch> {
    if node.take_null(leaves)? {
        let expected =
            C::schema("").map_or_else(|error| error.to_string(), |schema| schema::described(&schema));
        return Err(Mismatch::null(&expected));
    }
    Ok(())
}

impl<S: Scalar> Column for S {
    const LEAVES: usize = 1;

    fn schema_of(name: &str, repetition: Repetition) -> Result<Type, ParquetError> {
        S::TYPE.column(name, repetition)
    }

    fn shred(&self, at: Place, leaves: &mut [LeafBuffer]) -> Result<(), Unrepresentable> {
        Self::shred_all(std::slice::from_ref(self), at, leaves)
    }

    fn shred_all(values: &[Self], at: Place, leaves: &mut [LeafBuffer]) -> Result<(), Unrepresentable> {
        let bytes = S::stored_bytes(values);
        for leaf in leaves {
            S::store_all(values, leaf.push::<S::Physical>(at, values.len(), bytes)?)?;
        }
        Ok(())
    }

    fn assemble(node: &Node, leaves: &mut [Leaf]) -> Result<Self, Mismatch> {
        not_null::<Self>(node, leaves)?;
        let stored = node.leaf(leaves)?.take::<S::Physical>();
        S::read(stored.ok_or_else(Mismatch::levels)?)
    }

    fn assemble_all(list: &Node, leaves: &mut [Leaf]) -> Result<Vec<Self>, Mismatch> {
        match list.leaf(leaves)?.take_list::<S::Physical>(list.repetition()) {
            Some(stored) => S::read_all(stored),
            // The slow path finds the null element.
            None => one_by_one(list, leaves),
        }
    }
}

/// A value that may be null. Most lists and all maps are never null: an empty one has the same meaning.
impl<C: Column> Column for Option<C> {
    const LEAVES: usize = C::LEAVES;

    const REPETITION: Repetition = Repetition::OPTIONAL;

    fn schema_of(name: &str, repetition: Repetition) -> Result<Type, ParquetError> {
        C::schema_of(name, repetition)
    }

    fn shred(&self, at: Place, leaves: &mut [LeafBuffer]) -> Result<(), Unrepresentable> {
        match self {
            Some(value) => value.shred(at.present(), leaves)?,
            None => push_nulls(at, leaves),
        }
        Ok(())
    }

    fn assemble(node: &Node, leaves: &mut [Leaf]) -> Result<Self, Mismatch> {
        if node.take_null(leaves)? { Ok(None) } else { C::assemble(node, leaves).map(Some) }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<C: Column> Column for Vec<C> {
    const LEAVES: usize = C::LEAVES;

    fn schema_of(name: &str, repetition: Repetition) -> Result<Type, ParquetError> {
        schema::list(name, repetition, C::schema("element")?)
    }

    fn shred(&self, at: Place, leaves: &mut [LeafBuffer]) -> Result<(), Unrepresentable> {
        if self.is_empty() {
            push_nulls(at, leaves);
            return Ok(());
        }
        C::shred_all(self, at.first(), leaves)
    }

    fn assemble(node: &Node, leaves: &mut [Leaf]) -> Result<Self, Mismatch> {
        not_null::<Self>(node, leaves)?;
        if node.take_empty(leaves)? { Ok(Self::new()) } else { C::assemble_all(node, leaves) }
    }
}

impl<V: Column> Column for BTreeMap<String, V> {
    const LEAVES: usize = 1 + V::LEAVES;

    fn schema_of(name: &str, repetition: Repetition) -> Result<Type, ParquetError> {
        schema::map(name, repetition, String::schema("key")?, V::schema("value")?)
    }

    fn shred(&self, at: Place, leaves: &mut [LeafBuffer]) -> Result<(), Unrepresentable> {
        if self.is_empty() {
            push_nulls(at, leaves);
        }
        let first = at.first();
        let places = std::iter::once(first).chain(std::iter::repeat(first.next()));
        for ((key, value), at) in self.iter().zip(places) {
            let leaves = shred_field(key, at, leaves)?;
            shred_field(value, at, leaves)?;
        }
        Ok(())
    }

    fn assemble(node: &Node, leaves: &mut [Leaf]) -> Result<Self, Mismatch> {
        not_null::<Self>(node, leaves)?;
        let mut map = Self::new();
        if node.take_empty(leaves)? {
            return Ok(map);
        }
        loop {
            let key = String::assemble(node.part(0)?, leaves).map_err(|mismatch| mismatch.inside("key"))?;
            let value = V::assemble(node.part(1)?, leaves).map_err(|m| m.inside(&format!("[{key:?}]")))?;
            // Parquet allows duplicate keys, but a row has one value per name.
            if map.insert(key.clone(), value).is_some() {
                return Err(Mismatch::new(format!("the key {key:?} stands twice in one map")));
            }
            if !node.has_another(leaves)? {
                return Ok(map);
            }
        }
    }
}
