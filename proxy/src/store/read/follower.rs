//! Reads a data directory beside the proxy that writes it.

use std::path::{Path, PathBuf};

use super::archive::{Archive, ReadError};
use super::recovery::Scanner;

/// Opens a data directory again and again while a proxy writes it. Each time after the first, only the appended records
/// are scanned.
#[derive(Debug)]
pub struct ArchiveFollower {
    dir: PathBuf,
    scanner: Scanner,
}

impl ArchiveFollower {
    /// Follows a data directory, which need not exist yet.
    pub fn of(data_dir: &Path) -> Self {
        Self { dir: data_dir.to_owned(), scanner: Scanner::default() }
    }

    /// Returns the path of the data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the archive as it is now.
    ///
    /// # Errors
    /// As [`Archive::open`]. The next call then scans everything again.
    pub fn archive(&mut self) -> Result<Archive, ReadError> {
        match self.scanner.advance(&self.dir) {
            Ok(()) => Ok(Archive::of(&self.dir, self.scanner.snapshot().finish())),
            Err(error) => {
                // The scan may have stopped within a segment.
                self.scanner = Scanner::default();
                Err(error)
            }
        }
    }
}
