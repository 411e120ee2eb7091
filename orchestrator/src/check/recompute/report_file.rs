//! The file with every compared token. It appears when the check has ended.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rolltap_rollout::check::recomputation::RecomputedRow;
use tempfile::NamedTempFile;

use crate::common::new_file::{beside, place};

/// Why a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportFileError {
    /// The path exists.
    #[error("{} exists already: remove it, or give another --recompute-report", .0.display())]
    Exists(PathBuf),
    /// The file system refuses.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A report during the check: a temporary file beside its path. It is removed if the check fails.
#[derive(Debug)]
pub(super) struct ReportFile {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
}

impl ReportFile {
    pub(super) fn create(path: &Path) -> Result<Self, ReportFileError> {
        if path.exists() {
            return Err(ReportFileError::Exists(path.to_owned()));
        }
        let file = beside(path).map_err(|source| ReportFileError::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file) })
    }

    pub(super) fn add(&mut self, row: &RecomputedRow) -> Result<(), ReportFileError> {
        let written = serde_json::to_writer(&mut self.file, row).map_err(io::Error::from);
        let written = written.and_then(|()| self.file.write_all(b"\n"));
        written.map_err(|source| ReportFileError::Write { path: self.path.clone(), source })
    }

    /// Moves the file into place, synced so that a crash cannot leave an incomplete file there.
    pub(super) fn keep(self) -> Result<(), ReportFileError> {
        let Self { path, file } = self;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error);
        match file.and_then(|file| place(file, &path, false)) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(ReportFileError::Exists(path)),
            Err(source) => Err(ReportFileError::Write { path, source }),
        }
    }
}
