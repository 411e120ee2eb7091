//! Files that appear at their path when they are complete.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// Creates a temporary file in the directory of `path`. It is removed when dropped, unless [`place`] moves it.
pub(crate) fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut file = tempfile::Builder::new();
    // The user's umask applies to this mode, as to any other file. A temporary file would have 0600.
    file.permissions(Permissions::from_mode(0o666));
    file.prefix(&format!(".{name}.")).suffix(".part").tempfile_in(parent(path))
}

/// Moves a file of [`beside`] to its path. The error has the kind `AlreadyExists` if the path exists and `replaces` is
/// false.
pub(crate) fn place(file: NamedTempFile, path: &Path, replaces: bool) -> io::Result<()> {
    // Synced before the rename, so that a crash cannot leave an incomplete file at the final path.
    file.as_file().sync_all()?;
    if replaces { file.persist(path) } else { file.persist_noclobber(path) }?;
    File::open(parent(path))?.sync_all()
}

/// Returns the directory of a path.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
