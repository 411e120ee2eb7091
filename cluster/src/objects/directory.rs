//! Objects as files of a directory, for tests and for several nodes with a shared file system.
//!
//! A file is replaced by a rename, so that a reader sees all of it or nothing. A lock on the directory makes conditional
//! writes atomic.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use super::digest::Sha256;

/// The file whose lock a writer takes.
const LOCK: &str = ".lock";

/// The condition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// The object does not exist.
    Absent,
    /// The object has this version.
    Version(String),
}

/// A directory with objects. All functions block.
#[derive(Clone, Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self, key: &str) -> PathBuf {
        self.0.join(key)
    }

    /// Returns an object with its version.
    pub(super) fn read(&self, key: &str) -> io::Result<Option<(Vec<u8>, String)>> {
        match fs::read(self.path(key)) {
            Ok(bytes) => {
                let version = Sha256::of(&bytes).to_string();
                Ok(Some((bytes, version)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes an object. Returns its version, or `None` if the condition does not hold.
    pub(super) fn write(&self, key: &str, bytes: &[u8], condition: &Condition) -> io::Result<Option<String>> {
        let path = self.path(key);
        let dir = path.parent().ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
        fs::create_dir_all(dir)?;
        // The lock is released when the file is closed, also if the process dies.
        let lock = File::create(self.0.join(LOCK))?;
        lock.lock()?;
        let holds = match condition {
            Condition::Absent => !path.try_exists()?,
            Condition::Version(version) => self.read(key)?.is_some_and(|(_, current)| current == *version),
        };
        if !holds {
            return Ok(None);
        }
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        File::open(dir)?.sync_all()?;
        Ok(Some(Sha256::of(bytes).to_string()))
    }

    /// Removes an object, if it exists.
    pub(super) fn remove(&self, key: &str) -> io::Result<()> {
        match fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the names of the directories at the top.
    pub(super) fn folders(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_written_if_the_condition_holds() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Directory::new(dir.path().join("new"));
        assert_eq!(objects.read("a/b").unwrap(), None);
        let first = objects.write("a/b", b"one", &Condition::Absent).unwrap().unwrap();
        assert_eq!(objects.write("a/b", b"two", &Condition::Absent).unwrap(), None);
        assert_eq!(objects.read("a/b").unwrap(), Some((b"one".to_vec(), first.clone())));
        let second = objects.write("a/b", b"two", &Condition::Version(first.clone())).unwrap();
        assert!(second.is_some());
        assert_eq!(objects.write("a/b", b"three", &Condition::Version(first)).unwrap(), None);
        assert_eq!(objects.folders().unwrap(), ["a"]);
        objects.remove("a/b").unwrap();
        objects.remove("a/b").unwrap();
        assert_eq!(objects.read("a/b").unwrap(), None);
        assert_eq!(fs::read_dir(dir.path().join("new/a")).unwrap().count(), 0, "no temporary file remains");
    }
}
