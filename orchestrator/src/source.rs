//! Where rollouts are read from: a job directory, a proxy's data directory, or a single file.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use rolltap_proxy::store::{self, Archive};
use rolltap_rollout::export::formats::jsonl::JsonlReader;
use rolltap_rollout::export::formats::parquet::{self, ParquetReader};
use rolltap_rollout::export::pipeline::projection::RowPart;

use crate::job_dir::JobDir;

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nothing there.
    #[error("{} does not exist", .0.display())]
    NotFound(PathBuf),
    /// Something else is there.
    #[error("{} is no job directory (rollouts.jsonl, rollouts.parquet), no data directory of a proxy with trials in it, and no .jsonl or .parquet file", .0.display())]
    Nothing(PathBuf),
    /// The file system said no.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is no Parquet, or not of rollouts.
    #[error("{} cannot be read", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        #[source]
        source: parquet::ReadError,
    },
    /// The capture store cannot be read.
    #[error(transparent)]
    Store(#[from] store::ReadError),
}

/// What is at a path.
#[derive(Debug)]
pub(crate) enum Source {
    /// A job directory.
    Job(JobFiles),
    /// A proxy's data directory.
    Store(Box<Archive>),
    /// Rows by themselves.
    File(PathBuf),
}

/// What a job directory holds of its rollouts.
#[derive(Debug)]
pub(crate) struct JobFiles {
    /// The same rows as often as they are there, at least once: JSON Lines, then Parquet.
    pub(crate) rows: Vec<PathBuf>,
    /// The capture store; none of a job whose proxy was another's.
    pub(crate) data: Option<PathBuf>,
}

impl Source {
    /// Looks at what is there.
    pub(crate) fn at(path: &Path) -> Result<Self, SourceError> {
        if path.is_file() {
            return Ok(Self::File(path.to_owned()));
        }
        if !path.is_dir() {
            return Err(SourceError::NotFound(path.to_owned()));
        }
        let job = JobDir::at(path);
        let rows = [job.rollouts_jsonl(), job.rollouts_parquet()];
        let rows: Vec<_> = rows.into_iter().filter(|file| file.is_file()).collect();
        if !rows.is_empty() {
            return Ok(Self::Job(JobFiles { rows, data: Some(job.data()).filter(|data| data.is_dir()) }));
        }
        let archive = Archive::open(path)?;
        if archive.is_empty() {
            return Err(SourceError::Nothing(path.to_owned()));
        }
        Ok(Self::Store(Box::new(archive)))
    }
}

/// Rows, or parts of them, as they are asked for; in place of one that cannot be read, why.
pub(crate) type Rows<T> = Box<dyn Iterator<Item = Result<T, String>>>;

/// The rows of a file, by what it is named.
pub(crate) fn rows<T: RowPart + 'static>(path: &Path) -> Result<Rows<T>, SourceError> {
    let file = File::open(path).map_err(|source| SourceError::Read { path: path.to_owned(), source })?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("jsonl" | "ndjson") => {
            let rows = JsonlReader::of_parts(BufReader::with_capacity(BUFFER, file));
            Ok(Box::new(rows.map(|row| row.map_err(|error| error.to_string()))))
        }
        Some("parquet") => {
            let rows = ParquetReader::of_parts(file)
                .map_err(|source| SourceError::Parquet { path: path.to_owned(), source })?;
            Ok(Box::new(rows.map(|row| row.map_err(|error| error.to_string()))))
        }
        _ => Err(SourceError::Nothing(path.to_owned())),
    }
}

/// Of bytes read at once. A line can have millions.
const BUFFER: usize = 1 << 20;
