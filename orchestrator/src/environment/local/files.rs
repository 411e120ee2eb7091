//! Copies files into a local environment.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::forks;
use crate::environment::EnvironmentError;
use crate::environment::transfer::archive::walk;
use crate::environment::transfer::path_map::PathMap;

/// The largest file whose paths are changed. Larger files are data, not scripts.
const LARGEST_TEXT: u64 = 4 * 1024 * 1024;

/// Copies the contents of `from` into `to`, and changes the paths in text files and in links.
pub(super) fn copy_tree(from: &Path, to: &Path, paths: &PathMap) -> Result<(), EnvironmentError> {
    fs::create_dir_all(to).map_err(EnvironmentError::io("create", to))?;
    for entry in walk(from)? {
        copy(&entry.path, &to.join(&entry.name), Some(paths))
            .map_err(EnvironmentError::io("copy", &entry.path))?;
    }
    Ok(())
}

/// Copies one file, link or (empty) directory with its mode. Creates missing parent directories.
pub(super) fn copy(from: &Path, to: &Path, paths: Option<&PathMap>) -> io::Result<()> {
    let metadata = fs::symlink_metadata(from)?;
    if metadata.is_dir() {
        fs::create_dir_all(to)?;
        return fs::set_permissions(to, metadata.permissions());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    // A file is removed first: writing through an existing link would change its target.
    match fs::remove_file(to) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if metadata.is_symlink() {
        let target = fs::read_link(from)?;
        return match (paths, target.to_str()) {
            (Some(paths), Some(target)) => symlink(paths.apply(target), to),
            _ => symlink(target, to),
        };
    }
    // Other files are not executed, so they need not hold off forks.
    let _held_off = (metadata.permissions().mode() & 0o111 != 0).then(forks::held_off);
    match paths.filter(|_| metadata.len() <= LARGEST_TEXT) {
        Some(paths) => {
            let contents = fs::read(from)?;
            match std::str::from_utf8(&contents) {
                // A NUL byte means binary data, even in valid UTF-8.
                Ok(text) if !text.contains('\0') => fs::write(to, paths.apply(text))?,
                _ => fs::write(to, contents)?,
            }
        }
        None => {
            fs::copy(from, to)?;
        }
    }
    fs::set_permissions(to, metadata.permissions())
}
