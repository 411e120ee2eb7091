//! One job: where its rollouts are, and a cached list of its trials.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rolltap_orchestrator::failure::chain;
use rolltap_orchestrator::job_dir::JobDir;
use rolltap_proxy::store::{self, Archive, ArchiveFollower, ReadError};

use super::captures;
use super::files::TrialFiles;
use super::recompute::Reports;
use super::rows_file::{self, RowsFile};
use super::state::FilesState;
use super::trial::{ExportFacts, SearchedTrial, TrialContent, TrialEntry};

/// Where the rollouts of a job are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobKind {
    /// A capture store, in the directory of a job or alone.
    Captures { data: PathBuf, dir: Option<PathBuf> },
    /// A file of rows, in the directory of a job without captures or alone.
    Rows { file: PathBuf, dir: Option<PathBuf> },
    /// The directory of a job that has written neither.
    Begun { dir: PathBuf },
}

impl JobKind {
    /// Returns the kind of job at `path`. `None` if it is no job, no data directory and no file of rollouts.
    pub(super) fn at(path: &Path) -> Option<Self> {
        if path.is_file() {
            return rows_file::is_readable(path).then(|| Self::Rows { file: path.to_owned(), dir: None });
        }
        let dir = JobDir::at(path);
        if !dir.config().is_file() {
            return store::is_data_dir(path).then(|| Self::Captures { data: path.to_owned(), dir: None });
        }
        let dir_path = path.to_owned();
        if dir.data().is_dir() {
            return Some(Self::Captures { data: dir.data(), dir: Some(dir_path) });
        }
        // Parquet first: a list of trials reads only some of its columns.
        let rows = [dir.rollouts_parquet(), dir.rollouts_jsonl()].into_iter().find(|file| file.is_file());
        Some(match rows {
            Some(file) => Self::Rows { file, dir: Some(dir_path) },
            None => Self::Begun { dir: dir_path },
        })
    }

    /// Returns the directory of the job, if the rollouts are in one.
    fn dir(&self) -> Option<&Path> {
        match self {
            Self::Captures { dir, .. } | Self::Rows { dir, .. } => dir.as_deref(),
            Self::Begun { dir } => Some(dir),
        }
    }

    /// Returns the file or directory with the rollouts.
    fn source(&self) -> &Path {
        match self {
            Self::Captures { data, .. } => data,
            Self::Rows { file, .. } => file,
            Self::Begun { dir } => dir,
        }
    }
}

/// A job with a name.
#[derive(Debug)]
pub struct Job {
    name: String,
    path: PathBuf,
    /// Whether the path is the data directory of a proxy, which need not have captures yet.
    is_data_dir: bool,
    recompute: Arc<Reports>,
    last: Mutex<LastRead>,
}

/// The content of a job's files when they were last read.
#[derive(Debug, Default)]
struct LastRead {
    content: Option<(FilesState, Arc<JobContent>)>,
    /// Reads only what was appended to the captures. `None` if no captures were read.
    follower: Option<ArchiveFollower>,
}

/// The trials of a job, as its files had them at one moment.
#[derive(Debug)]
pub struct JobContent {
    /// The trials in the order in which they were opened, or of the file.
    pub trials: Vec<TrialEntry>,
    /// Whether a process still runs the job.
    pub is_running: bool,
    /// Descriptions of the parts that cannot be read, for the reader of the page.
    pub problems: Vec<String>,
    /// The bytes of the files with the rollouts.
    pub bytes: u64,
    kind: JobKind,
    recompute: Arc<Reports>,
    records: Records,
}

/// Where the calls and rows of a trial are read.
#[derive(Debug)]
enum Records {
    Captures(Box<Archive>),
    Rows(RowsFile),
    /// The job has none, or they cannot be read.
    None,
}

impl Job {
    pub(super) fn new(name: String, path: PathBuf) -> Self {
        Self { name, path, is_data_dir: false, recompute: Arc::default(), last: Mutex::default() }
    }

    /// Shows the captures of a data directory, which need not exist yet.
    pub(super) fn of_data_dir(name: String, path: PathBuf) -> Self {
        Self { is_data_dir: true, ..Self::new(name, path) }
    }

    fn kind(&self) -> Option<JobKind> {
        match self.is_data_dir {
            true => Some(JobKind::Captures { data: self.path.clone(), dir: None }),
            false => JobKind::at(&self.path),
        }
    }

    /// Shows this report of a recomputation, instead of that in the directory of the job.
    pub(super) fn with_recompute(self, report: Arc<Reports>) -> Self {
        Self { recompute: report, ..self }
    }

    /// Returns the name, which is unique in the collection.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path that the job was found at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes of the files with the rollouts, which grow with each change of a running job, and whether a
    /// process still runs the job.
    pub fn progress(&self) -> (u64, bool) {
        let bytes = self.kind().map_or(0, |kind| FilesState::of([kind.source()]).bytes());
        (bytes, is_running(&self.path))
    }

    /// Reads the list of trials, or returns the list that was read before if no file has changed.
    pub fn content(&self) -> Arc<JobContent> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // A running job may have written its first captures since.
        let kind = self.kind();
        let state = kind.as_ref().map(|kind| FilesState::of([kind.source()])).unwrap_or_default();
        if let Some((known, content)) = &last.content
            && *known == state
            && content.is_running == is_running(&self.path)
        {
            return Arc::clone(content);
        }
        let content = Arc::new(JobContent::read(self, kind, state.bytes(), &mut last.follower));
        last.content = Some((state, Arc::clone(&content)));
        content
    }
}

impl JobContent {
    fn read(job: &Job, kind: Option<JobKind>, bytes: u64, follower: &mut Option<ArchiveFollower>) -> Self {
        let path = &job.path;
        let mut problems = Vec::new();
        let kind = kind.unwrap_or_else(|| {
            problems.push(format!("{} is gone or has no rollouts any more", path.display()));
            JobKind::Begun { dir: path.to_owned() }
        });
        let (mut trials, mut records) = (Vec::new(), Records::None);
        match &kind {
            JobKind::Captures { data, .. } => match follow(data, follower) {
                Ok(read) => {
                    trials = read.outlines().map(|outline| TrialEntry::of_outline(&outline)).collect();
                    problems.extend(captures::damage(read.damage()));
                    records = Records::Captures(Box::new(read));
                }
                Err(error) => problems.push(chain(&error)),
            },
            JobKind::Rows { file, .. } => {
                let (file, entries) = RowsFile::read(file, &mut problems);
                (trials, records) = (entries, Records::Rows(file));
            }
            JobKind::Begun { .. } => {}
        }
        Self {
            trials,
            is_running: is_running(path),
            problems,
            bytes,
            kind,
            recompute: Arc::clone(&job.recompute),
            records,
        }
    }

    /// Returns the entry of a trial.
    pub fn entry(&self, id: &str) -> Option<&TrialEntry> {
        self.trials.iter().find(|trial| trial.id == id)
    }

    /// Reads the trials of a group, in order of sample and attempt. Empty if the job has no such group.
    pub fn group(&self, group: &str) -> Vec<TrialContent> {
        let of_group = self.trials.iter().filter(|trial| trial.group.as_deref() == Some(group));
        let mut samples: Vec<_> = of_group.filter_map(|trial| self.trial(&trial.id)).collect();
        samples.sort_by_key(|sample| (sample.entry.sample, sample.entry.attempt));
        samples
    }

    /// Reads one whole trial, and of the captures only its own records. `None` if the job has no such trial.
    pub fn trial(&self, id: &str) -> Option<TrialContent> {
        let entry = self.entry(id)?.clone();
        let files = self.kind.dir().map(|dir| TrialFiles::at(&dir.join(id))).unwrap_or_default();
        let export = ExportFacts::default();
        let mut content = TrialContent {
            entry,
            rows: Vec::new(),
            calls: Vec::new(),
            version_changes: Vec::new(),
            pauses: Vec::new(),
            notes: Vec::new(),
            recomputed: Vec::new(),
            export,
            files,
            problems: Vec::new(),
        };
        match &self.records {
            Records::Rows(file) => content.rows = file.rows_of(id, &mut content.problems),
            Records::Captures(archive) => captures::read_trial(archive, id, &mut content),
            Records::None => {}
        }
        self.recompute.add_to(&mut content, self.kind.dir());
        Some(content)
    }

    /// Reads the calls and rows of these trials, one trial after the other, while `has_time` returns true.
    pub(crate) fn visit_trials(
        &self,
        wanted: &HashSet<&str>,
        has_time: &dyn Fn() -> bool,
        visit: &mut dyn FnMut(SearchedTrial<'_>),
    ) {
        let archive = match &self.records {
            Records::Rows(file) => return file.visit_trials(wanted, has_time, visit),
            Records::Captures(archive) => archive,
            Records::None => return,
        };
        let ids = self.trials.iter().map(|trial| trial.id.as_str()).filter(|id| wanted.contains(id));
        for id in ids.take_while(|_| has_time()) {
            if let Some((rows, calls)) = captures::read_words(archive, id) {
                visit(SearchedTrial { id, rows: &rows, calls: &calls });
            }
        }
    }
}

/// Reads the captures at `data`, and only what was appended since if `follower` has read them before.
fn follow(data: &Path, follower: &mut Option<ArchiveFollower>) -> Result<Archive, ReadError> {
    let known = follower.take().filter(|known| known.dir() == data);
    follower.insert(known.unwrap_or_else(|| ArchiveFollower::of(data))).archive()
}

/// Whether a process runs the job of this directory.
fn is_running(path: &Path) -> bool {
    JobDir::at(path).runner().is_some()
}
