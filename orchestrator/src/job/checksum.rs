//! Identifies the version of a task by a hash over the files of its directory.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Returns the hex SHA-256 over every file below `dir`, sorted by path: the relative path and the content of each file.
/// The content of a symbolic link is its target.
pub(super) fn of_dir(dir: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    list(dir, &mut files)?;
    // The order of `read_dir` depends on the file system.
    files.sort();
    let mut hasher = Sha256::new();
    for file in files {
        let content = if file.is_symlink() {
            std::fs::read_link(&file)?.into_os_string().into_encoded_bytes()
        } else {
            std::fs::read(&file)?
        };
        let path = file.strip_prefix(dir).unwrap_or(&file).as_os_str().as_encoded_bytes();
        for part in [path, &content] {
            // Without the lengths, a byte could move from a path to a content without a change of the hash.
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), files)?;
        } else if kind.is_file() || kind.is_symlink() {
            // Pipes and sockets are not copied into environments, and reading one could block.
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_name_and_byte_counts() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tests")).unwrap();
        fs::write(dir.path().join("tests/a"), "1").unwrap();
        let first = of_dir(dir.path()).unwrap();
        assert_eq!(first, of_dir(dir.path()).unwrap());
        fs::write(dir.path().join("tests/a"), "2").unwrap();
        let changed = of_dir(dir.path()).unwrap();
        fs::rename(dir.path().join("tests/a"), dir.path().join("tests/b")).unwrap();
        let renamed = of_dir(dir.path()).unwrap();
        assert!(first != changed && changed != renamed);
        assert_eq!(first.len(), 64);
    }
}
