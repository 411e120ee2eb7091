//! The error that a file does not have a row's type.

use parquet::schema::types::Type;

use super::schema::described;

/// The error that a column, or one of its values, does not have a row's type.
#[derive(Debug)]
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

    pub(super) fn missing(expected: &Type) -> Self {
        Self::new(format!("missing, {} is expected", described(expected)))
    }

    pub(super) fn wrong_type(expected: &Type, found: &Type) -> Self {
        Self::new(format!("holds {}, {} is expected", described(found), described(expected)))
    }

    pub(super) fn null(expected: &str) -> Self {
        Self::new(format!("is null, {expected} is expected"))
    }

    /// Returns the error of a damaged file, in which the leaves of one list or struct disagree.
    pub(super) fn levels() -> Self {
        Self::new("the file is damaged: the levels of this column contradict those of its neighbours")
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
