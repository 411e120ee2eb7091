//! The sources from which rollouts are read: a job directory, a proxy's data directory, or a single file. Captures
//! in object storage are first copied into a data directory.

pub mod objects;

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rolltap_proxy::store::{self, Archive};
use rolltap_rollout::export::formats::jsonl::{self, JsonlReader};
use rolltap_rollout::export::formats::parquet::{self, ParquetReader};
use rolltap_rollout::export::pipeline::projection::RowPart;
use rolltap_rollout::ids::RewardVersion;

use crate::common::shell::word;
use crate::job_dir::JobDir;

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The path does not exist.
    #[error("{} does not exist", .0.display())]
    NotFound(PathBuf),
    /// The path exists, but is no source of rollouts.
    #[error("{} has no rollouts: expected a job directory (rollouts.jsonl, rollouts.parquet), a data directory of a proxy with trials, or a .jsonl or .parquet file", .0.display())]
    Nothing(PathBuf),
    /// There are no rewards of the requested version.
    #[error("{} has no rewards of version {version}: {}", path.display(), known_versions(.known))]
    NoVersion {
        /// The job directory or data directory.
        path: PathBuf,
        /// The requested version.
        version: RewardVersion,
        /// The versions that exist.
        known: Vec<String>,
    },
    /// The later verification of this version was interrupted.
    #[error(
        "version {version} of the rewards in {} is not complete: `rolltap regrade {} --name {version}` completes it",
        path.display(), word(&path.to_string_lossy())
    )]
    Unfinished {
        /// The job directory.
        path: PathBuf,
        /// The requested version.
        version: RewardVersion,
    },
    /// A version was requested of a file of rows, which has one reward per row.
    #[error(
        "{} is a file, and its rows have one reward each: give the job directory or data directory to choose version \
         {version}, or the files in its directory regrades/{version}",
        path.display()
    )]
    VersionOfFile {
        /// The file.
        path: PathBuf,
        /// The requested version.
        version: RewardVersion,
    },
    /// The job still runs. It writes its rollouts at its end.
    #[error(
        "the job in {} is still running{}, and writes its rollouts at its end: wait for it, or read the rollouts of \
         complete trials from its proxy",
        path.display(), by(process)
    )]
    Running {
        /// The job directory.
        path: PathBuf,
        /// The id of its process, if it is recorded.
        process: Option<u32>,
    },
    /// The job was interrupted before it could write its rollouts.
    #[error("the job in {} ended before it wrote its rollouts: `rolltap resume {}` completes it", .0.display(), word(&.0.to_string_lossy()))]
    Interrupted(PathBuf),
    /// The file system returned an error.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a Parquet file, or does not hold rollouts.
    #[error("{} cannot be read", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The reader's error.
        #[source]
        source: parquet::ReadError,
    },
    /// The capture store cannot be read.
    #[error(transparent)]
    Store(#[from] store::ReadError),
}

fn known_versions(known: &[String]) -> String {
    match known {
        [] => "there is only the reward of each trial itself, which has no version; `rolltap regrade` makes a version"
            .to_owned(),
        known => format!("the versions are {}", known.join(", ")),
    }
}

fn by(process: &Option<u32>) -> String {
    process.map(|process| format!(" (process {process})")).unwrap_or_default()
}

/// The kind of source at a path.
#[derive(Debug)]
pub(crate) enum Source {
    /// A job directory.
    Job(JobFiles),
    /// A proxy's data directory.
    Store(Box<Archive>),
    /// A file with rows.
    File(PathBuf),
}

/// The rollout files of a job directory.
#[derive(Debug)]
pub(crate) struct JobFiles {
    /// Files that each hold all rows, at least one: JSON Lines first, then Parquet.
    pub(crate) rows: Vec<PathBuf>,
    /// The directory of the capture store. `None` if the job used a proxy that ran outside it.
    pub(crate) data: Option<PathBuf>,
}

impl Source {
    /// Finds out which kind of source is at `path`. `version` chooses the rewards of a later verification.
    ///
    /// # Errors
    /// The path does not exist, or is no source of rollouts; the version does not exist; or the capture store cannot be
    /// read.
    pub(crate) fn at(path: &Path, version: Option<&RewardVersion>) -> Result<Self, SourceError> {
        if path.is_file() {
            return match version.cloned() {
                Some(version) => Err(SourceError::VersionOfFile { path: path.to_owned(), version }),
                None => Ok(Self::File(path.to_owned())),
            };
        }
        if !path.is_dir() {
            return Err(SourceError::NotFound(path.to_owned()));
        }
        let job = JobDir::at(path);
        let mut rows = existing([job.rollouts_jsonl(), job.rollouts_parquet()]);
        if !rows.is_empty() {
            if let Some(version) = version {
                rows = rows_of_version(&job, version)?;
            }
            return Ok(Self::Job(JobFiles { rows, data: Some(job.data()).filter(|data| data.is_dir()) }));
        }
        // A service writes no rollout files: its groups come and go.
        let store = if job.is_of_a_service() { job.data() } else { path.to_owned() };
        if store == path && job.config().is_file() {
            return Err(match job.runner() {
                Some(process) => SourceError::Running { path: path.to_owned(), process },
                None => SourceError::Interrupted(path.to_owned()),
            });
        }
        // Any other directory without rollout files and without a configuration can only be a proxy's data directory.
        let archive = Archive::open(&store)?;
        if archive.is_empty() {
            return Err(SourceError::Nothing(path.to_owned()));
        }
        if let Some(version) = version {
            must_have(path, version, archive.reward_versions())?;
        }
        Ok(Self::Store(Box::new(archive)))
    }
}

/// Fails if there are no rewards of this version. `known` has the versions that exist.
fn must_have<'v>(
    path: &Path,
    version: &RewardVersion,
    known: impl IntoIterator<Item = &'v RewardVersion>,
) -> Result<(), SourceError> {
    let known: Vec<_> = known.into_iter().collect();
    if known.contains(&version) {
        return Ok(());
    }
    let known = known.into_iter().map(ToString::to_string).collect();
    Err(SourceError::NoVersion { path: path.to_owned(), version: version.clone(), known })
}

fn existing(files: [PathBuf; 2]) -> Vec<PathBuf> {
    files.into_iter().filter(|file| file.is_file()).collect()
}

/// Returns the files with the rewards of a later verification.
fn rows_of_version(job: &JobDir, version: &RewardVersion) -> Result<Vec<PathBuf>, SourceError> {
    let path = job.path().to_owned();
    let known = match job.regrades() {
        Ok(known) => known,
        Err(source) => return Err(SourceError::Read { path, source }),
    };
    must_have(&path, version, &known)?;
    let dir = job.regrade(version);
    let rows = existing([dir.rollouts_jsonl(), dir.rollouts_parquet()]);
    if rows.is_empty() { Err(SourceError::Unfinished { path, version: version.clone() }) } else { Ok(rows) }
}

/// The place of a row in its file, with which it is read without the rows before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace(u64);

/// An iterator that reads rows, or parts of rows, on demand. A row that cannot be read is an error text.
pub type Rows<T> = Box<dyn Iterator<Item = Result<T, String>>>;

/// Reads the rows of a file. The file name's extension decides the format.
///
/// # Errors
/// The file cannot be opened, is not valid Parquet, or has another extension.
pub fn rows<T: RowPart + 'static>(path: &Path) -> Result<Rows<T>, SourceError> {
    Ok(Box::new(PlacedRows::of(path)?.map(|(_, row)| row)))
}

/// Reads the rows at these places, which are in ascending order. A row is `None` if the file has become shorter.
///
/// # Errors
/// As [`rows`].
pub fn rows_at<T: RowPart>(
    path: &Path,
    places: &[RowPlace],
) -> Result<Vec<Option<Result<T, String>>>, SourceError> {
    let (mut found, mut reader) = (Vec::new(), None);
    for &place in places {
        // A Parquet file is decoded in order, so the rows of a trial share one pass over their row group.
        let rows = match reader.take() {
            Some(PlacedRows::Parquet(rows)) => PlacedRows::Parquet(rows),
            Some(PlacedRows::Jsonl { .. }) | None => PlacedRows::from(path, place)?,
        };
        let rows = reader.insert(rows);
        found.push(rows.find(|(at, _)| *at >= place).map(|(_, row)| row));
    }
    Ok(found)
}

/// The rows of a file with their places.
pub enum PlacedRows<T> {
    /// The place of a row is the offset of its line, or of blank lines before it.
    Jsonl {
        /// Reads from `start` on.
        reader: JsonlReader<BufReader<File>, T>,
        /// The offset of the reader's first byte in the file.
        start: u64,
    },
    /// The place of a row is its index.
    Parquet(Box<ParquetReader<T>>),
}

impl<T: RowPart> PlacedRows<T> {
    /// Reads a file from its beginning.
    ///
    /// # Errors
    /// As [`rows`].
    pub fn of(path: &Path) -> Result<Self, SourceError> {
        Self::from(path, RowPlace(0))
    }

    /// Reads a file from a row on, or from an earlier row where the format has no access to single rows.
    fn from(path: &Path, RowPlace(place): RowPlace) -> Result<Self, SourceError> {
        let failed = |source| SourceError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl" | "ndjson") => {
                file.seek(SeekFrom::Start(place)).map_err(failed)?;
                let buffer = if place == 0 { BUFFER } else { BUFFER_OF_A_ROW };
                let reader = JsonlReader::of_parts(BufReader::with_capacity(buffer, file));
                Ok(Self::Jsonl { reader, start: place })
            }
            Some("parquet") => match ParquetReader::of_parts_from(file, place) {
                Ok(reader) => Ok(Self::Parquet(Box::new(reader))),
                Err(source) => Err(SourceError::Parquet { path: path.to_owned(), source }),
            },
            _ => Err(SourceError::Nothing(path.to_owned())),
        }
    }
}

impl<T: RowPart> Iterator for PlacedRows<T> {
    type Item = (RowPlace, Result<T, String>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Jsonl { reader, start } => {
                let place = RowPlace(*start + reader.offset());
                let described = |error| match error {
                    // The reader counts lines from the place on.
                    jsonl::ReadError::Line { problem, .. } if *start > 0 => problem,
                    error => error.to_string(),
                };
                reader.next().map(|row| (place, row.map_err(described)))
            }
            Self::Parquet(reader) => {
                let place = RowPlace(reader.next_row());
                reader.next().map(|row| (place, row.map_err(|error| error.to_string())))
            }
        }
    }
}

/// Bytes per read of a JSON Lines file. One line can have millions of bytes.
const BUFFER: usize = 1 << 20;
/// Bytes per read for a single line, which the last read may exceed by this much.
const BUFFER_OF_A_ROW: usize = 1 << 16;
