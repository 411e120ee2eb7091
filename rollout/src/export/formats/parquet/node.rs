//! Finds the columns of a row in the schema of a file, and reads their levels.

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::Repetition;
use parquet::schema::types::{SchemaDescriptor, Type};

use super::leaf::Leaf;
use super::mismatch::Mismatch;
use super::schema::{Kind, leaves, repetition};

/// A node of a row's schema, with its levels in the file. Their definition levels depend on what the file's writer
/// declared as optional.
#[derive(Debug)]
pub struct Node {
    /// The definition level from which every enclosing value is present.
    outer: i16,
    /// The definition level from which the value is not null. It equals `outer` if the file has no nulls here.
    defined: i16,
    /// Of lists and maps: the repetition level of all elements but the first one.
    repetition: i16,
    /// The leaves of this node, at least one.
    leaves: Range<usize>,
    /// The element of a list, the key and value of a map, or the fields of a struct, with `None` for a field that
    /// the file does not have.
    children: Vec<Option<Node>>,
}

impl Node {
    pub(super) fn leaf<'a>(&self, leaves: &'a mut [Leaf]) -> Result<&'a mut Leaf, Mismatch> {
        leaves.get_mut(self.leaves.start).ok_or_else(Mismatch::levels)
    }

    fn own<'a>(&self, leaves: &'a mut [Leaf]) -> &'a mut [Leaf] {
        leaves.get_mut(self.leaves.clone()).unwrap_or_default()
    }

    /// Returns the fields of a struct in the order of its list. A field that the file does not have is `None`.
    pub(super) fn children(&self) -> impl Iterator<Item = Option<&Self>> {
        self.children.iter().map(Option::as_ref)
    }

    /// Returns the element of a list, or the key or value of a map, by its index.
    pub(super) fn part(&self, index: usize) -> Result<&Self, Mismatch> {
        self.children.get(index).and_then(Option::as_ref).ok_or_else(Mismatch::levels)
    }

    /// Whether the value at the cursor is null. If so, moves the cursor of every leaf over it.
    pub(super) fn take_null(&self, leaves: &mut [Leaf]) -> Result<bool, Mismatch> {
        self.take_below(self.defined, leaves)
    }

    /// Whether the list or map at the cursor, which is not null, is empty. If so, moves the cursor of every leaf.
    pub(super) fn take_empty(&self, leaves: &mut [Leaf]) -> Result<bool, Mismatch> {
        self.take_below(self.defined + 1, leaves)
    }

    fn take_below(&self, level: i16, leaves: &mut [Leaf]) -> Result<bool, Mismatch> {
        let is_below = self.leaf(leaves)?.definition().is_some_and(|definition| definition < level);
        for leaf in self.own(leaves) {
            // `None` is a column that ends before its row.
            let definition = leaf.definition().ok_or_else(Mismatch::levels)?;
            if definition < self.outer || (definition < level) != is_below {
                return Err(Mismatch::levels());
            }
            if is_below {
                leaf.skip();
            }
        }
        Ok(is_below)
    }

    /// Whether the list or map has another element at the cursor. All leaves must agree.
    pub(super) fn has_another(&self, leaves: &mut [Leaf]) -> Result<bool, Mismatch> {
        let has_another = self.leaf(leaves)?.repetition() == Some(self.repetition);
        for leaf in self.own(leaves) {
            let level = leaf.repetition();
            let is_possible = level.is_none_or(|level| level <= self.repetition);
            if !is_possible || (level == Some(self.repetition)) != has_another {
                return Err(Mismatch::levels());
            }
        }
        Ok(has_another)
    }

    /// The repetition level of all elements but the first one.
    pub(super) fn repetition(&self) -> i16 {
        self.repetition
    }
}

/// Finds the columns of `expected`, the schema of a row, in a file. Other columns and fields are ignored. Nullability
/// and the names of list elements and map entries may differ, because other writers choose other ones.
pub(super) fn find(expected: &Type, file: &SchemaDescriptor) -> Result<(Node, Vec<Leaf>), Mismatch> {
    let mut finder = Finder { file, leaves: Vec::new() };
    let root = Position { definition: 0, repetition: 0, column: 0 };
    let node = finder.value(expected, file.root_schema(), false, root)?;
    Ok((node, finder.leaves))
}

/// The levels of a node's parents, and the node's first column in the file.
#[derive(Clone, Copy)]
struct Position {
    definition: i16,
    repetition: i16,
    column: usize,
}

struct Finder<'a> {
    file: &'a SchemaDescriptor,
    leaves: Vec<Leaf>,
}

impl Finder<'_> {
    fn node(&mut self, expected: &Type, found: &Type, at: Position) -> Result<Node, Mismatch> {
        match (repetition(found), Kind::of(expected)) {
            (Repetition::REQUIRED, _) => self.value(expected, found, false, at),
            (Repetition::OPTIONAL, _) => self.value(expected, found, true, at),
            // A repeated field without an annotation is a list.
            (Repetition::REPEATED, Kind::List(element)) => {
                let (node, at) = self.repeated(false, at);
                let element = self.value(element.schema, found, false, at)?;
                self.finished(node, vec![Some(element)])
            }
            (Repetition::REPEATED, _) => Err(Mismatch::wrong_type(expected, found)),
        }
    }

    /// Finds the columns of a value that is not repeated, or of one element of a repeated value.
    fn value(
        &mut self,
        expected: &Type,
        found: &Type,
        is_nullable: bool,
        at: Position,
    ) -> Result<Node, Mismatch> {
        match (Kind::of(expected), Kind::of(found)) {
            (Kind::Scalar(wanted), Kind::Scalar(scalar)) if wanted == scalar => {
                let node = self.single(is_nullable, at);
                let descriptor = self.file.columns().get(at.column).ok_or_else(Mismatch::levels)?;
                let leaf = Leaf::new(at.column, descriptor);
                self.leaves.push(leaf.ok_or_else(|| Mismatch::wrong_type(expected, found))?);
                self.finished(node, Vec::new())
            }
            (Kind::List(wanted), Kind::List(element)) => {
                let (node, at) = self.repeated(is_nullable, at);
                let element = if element.is_repeated {
                    self.value(wanted.schema, element.schema, false, at)?
                } else {
                    self.node(wanted.schema, element.schema, at)?
                };
                self.finished(node, vec![Some(element)])
            }
            (Kind::Map { key, value }, Kind::Map { key: found_key, value: found_value }) => {
                let (node, at) = self.repeated(is_nullable, at);
                let key = self.node(key, found_key, at)?;
                let at = Position { column: at.column + leaves(found_key), ..at };
                let value = self.node(value, found_value, at)?;
                self.finished(node, vec![Some(key), Some(value)])
            }
            (Kind::Struct(wanted), Kind::Struct(fields)) => {
                let node = self.single(is_nullable, at);
                let at = Position { definition: node.defined, ..at };
                let find = |field: &Arc<Type>| self.field(field, fields, at);
                let children = wanted.iter().map(find).collect::<Result<_, _>>()?;
                self.finished(node, children)
            }
            _ => Err(Mismatch::wrong_type(expected, found)),
        }
    }

    fn field(
        &mut self,
        expected: &Type,
        found: &[Arc<Type>],
        at: Position,
    ) -> Result<Option<Node>, Mismatch> {
        let name = expected.name();
        let mut column = at.column;
        for field in found {
            if field.name() == name {
                let at = Position { column, ..at };
                return self.node(expected, field, at).map(Some).map_err(|mismatch| mismatch.inside(name));
            }
            column += leaves(field);
        }
        // A file of an earlier version has no column for a newer optional field.
        match repetition(expected) {
            Repetition::OPTIONAL => Ok(None),
            _ => Err(Mismatch::missing(expected).inside(name)),
        }
    }

    fn single(&self, is_nullable: bool, at: Position) -> Node {
        Node {
            outer: at.definition,
            defined: at.definition + i16::from(is_nullable),
            repetition: at.repetition,
            leaves: self.leaves.len()..self.leaves.len(),
            children: Vec::new(),
        }
    }

    /// Starts the node of a list or map, and returns the position of its elements.
    fn repeated(&self, is_nullable: bool, at: Position) -> (Node, Position) {
        let node = Node { repetition: at.repetition + 1, ..self.single(is_nullable, at) };
        let at = Position { definition: node.defined + 1, repetition: node.repetition, ..at };
        (node, at)
    }

    fn finished(&self, node: Node, children: Vec<Option<Node>>) -> Result<Node, Mismatch> {
        let leaves = node.leaves.start..self.leaves.len();
        if leaves.is_empty() {
            return Err(Mismatch::new("none of its fields is known"));
        }
        Ok(Node { leaves, children, ..node })
    }
}
