//! The git repository that a task came from.

use std::path::PathBuf;

/// Where a task came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitOrigin {
    /// The repository.
    pub url: String,
    /// The whole id of its version.
    pub commit: String,
    /// The task's directory, seen from the repository's root.
    pub path: PathBuf,
}
