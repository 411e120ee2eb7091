//! The destination of an export. A file is written under a temporary name and moved into place when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Cursor, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::common::new_file::{beside, parent, place};

/// The destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output. It gets the export when it is complete.
    Stdout,
    /// A file.
    File {
        /// The path.
        path: PathBuf,
        /// Whether to replace an existing file.
        replaces: bool,
    },
}

/// Why an export cannot be written there.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The path exists.
    #[error("{} exists already; --force replaces it", .0.display())]
    Exists(PathBuf),
    /// The path cannot be written.
    #[error("cannot write to {}: {problem}", path.display())]
    Unusable {
        /// The path.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// Writing failed.
    #[error("cannot write {to}: {source}")]
    Write {
        /// The destination.
        to: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl Output {
    /// Checks the destination before the work starts.
    pub(super) fn check(&self) -> Result<(), OutputError> {
        let Self::File { path, replaces } = self else { return Ok(()) };
        let unusable =
            |problem: &str| Err(OutputError::Unusable { path: path.clone(), problem: problem.to_owned() });
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => unusable("it is there and no file; - is standard output"),
            Ok(_) if !replaces => Err(OutputError::Exists(path.clone())),
            _ if path.file_name().is_none() => unusable("it names no file"),
            _ if !parent(path).is_dir() => unusable("its directory does not exist"),
            _ => Ok(()),
        }
    }

    /// Creates the draft.
    pub(super) fn draft(&self) -> Result<Draft, OutputError> {
        let draft = match self {
            // A pipe cannot seek, and it must get no part of a failed export.
            Self::Stdout => {
                tempfile::tempfile().map(|file| Draft::Spool(BufWriter::with_capacity(BUFFER, file)))
            }
            Self::File { path, replaces } => beside(path).map(|file| Draft::Aside {
                file: BufWriter::with_capacity(BUFFER, file),
                path: path.clone(),
                replaces: *replaces,
            }),
        };
        draft.map_err(|source| OutputError::Unusable { path: self.place(), problem: source.to_string() })
    }

    fn place(&self) -> PathBuf {
        match self {
            Self::Stdout => std::env::temp_dir(),
            Self::File { path, .. } => path.clone(),
        }
    }
}

const BUFFER: usize = 1 << 20;

/// An export that is not complete yet.
#[derive(Debug)]
pub(super) enum Draft {
    /// Data for standard output.
    Spool(BufWriter<File>),
    /// Data for the caller.
    Memory(Cursor<Vec<u8>>),
    /// Data for a file.
    Aside { file: BufWriter<NamedTempFile>, path: PathBuf, replaces: bool },
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Spool(file) => file.write(bytes),
            Self::Memory(data) => data.write(bytes),
            Self::Aside { file, .. } => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Spool(file) => file.flush(),
            Self::Memory(data) => data.flush(),
            Self::Aside { file, .. } => file.flush(),
        }
    }
}

impl Seek for Draft {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Spool(file) => file.seek(to),
            Self::Memory(data) => data.seek(to),
            Self::Aside { file, .. } => file.seek(to),
        }
    }
}

impl Draft {
    /// Writes the draft to standard output, or moves it into place and syncs it to disk. The caller has the data of a
    /// draft in memory.
    pub(super) fn keep(self) -> Result<(), OutputError> {
        let failed = |to: &str| {
            let to = to.to_owned();
            move |source| OutputError::Write { to, source }
        };
        match self {
            Self::Spool(file) => print(file).map_err(failed("standard output")),
            Self::Memory(_) => Ok(()),
            Self::Aside { file, path, replaces } => {
                let failed = failed(&path.display().to_string());
                let file = file.into_inner().map_err(|error| failed(error.into_error()));
                put(file?, &path, replaces)
            }
        }
    }
}

fn print(file: BufWriter<File>) -> io::Result<()> {
    let mut file = file.into_inner()?;
    file.rewind()?;
    let mut out = io::stdout().lock();
    io::copy(&mut file, &mut out)?;
    out.flush()
}

fn put(file: NamedTempFile, path: &Path, replaces: bool) -> Result<(), OutputError> {
    match place(file, path, replaces) {
        Ok(()) => Ok(()),
        // The file may have appeared since the check.
        Err(error) if !replaces && error.kind() == io::ErrorKind::AlreadyExists => {
            Err(OutputError::Exists(path.to_owned()))
        }
        Err(source) => Err(OutputError::Write { to: path.display().to_string(), source }),
    }
}
