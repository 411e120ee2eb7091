//! The git repository that a task came from.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The origin of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitOrigin {
    /// The URL of the repository.
    pub url: String,
    /// The full id of the commit.
    pub commit: String,
    /// The task's directory, relative to the repository's root.
    pub path: PathBuf,
}
