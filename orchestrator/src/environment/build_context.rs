//! Selects the files of a task's `environment/` that are sent to the builder.

use std::io::ErrorKind;
use std::path::Path;

use super::EnvironmentError;
use super::transfer::archive::{ArchiveEntry, walk};
use crate::task::glob::Ignore;

/// Returns all entries of `dir` that `.dockerignore` does not exclude.
pub(super) fn build_context(dir: &Path) -> Result<Vec<ArchiveEntry>, EnvironmentError> {
    let ignore_file = dir.join(".dockerignore");
    let ignore = match std::fs::read_to_string(&ignore_file) {
        Ok(text) => Ignore::parse(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ignore::default(),
        Err(error) => return Err(EnvironmentError::io("read", ignore_file)(error)),
    };
    // The engine needs both files. If they are ignored, it excludes them from the image itself.
    let needed = |entry: &ArchiveEntry| {
        entry.name == Path::new("Dockerfile") || entry.name == Path::new(".dockerignore")
    };
    let mut entries = walk(dir)?;
    entries.retain(|entry| needed(entry) || !ignore.ignores(&entry.name.to_string_lossy()));
    Ok(entries)
}
