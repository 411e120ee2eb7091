//! A job's directory, laid out as Harbor's: what lies where, and how it is written.
//!
//! ```text
//! JOBS_DIR/JOB/   config.json lock.json result.json job.log rollouts.jsonl rollouts.parquet data/ .running
//!     TRIAL/      config.json result.json trial.log exception.txt agent/ verifier/ artifacts/
//!         steps/STEP/     agent/ verifier/ artifacts/, where the task has steps
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jiff::{Timestamp, Zoned};
use rolltap_rollout::ids::TrialId;
use serde::Serialize;

use crate::environment::LogDirs;

/// Which process runs the job, locked by it.
const LOCK: &str = ".running";

/// What a job's directory may have before its `config.json` is there.
const BEFORE_CONFIG: [&str; 4] = [LOCK, "lock.json", "lock.json.tmp", "config.json.tmp"];

/// The directory of one job. Its files are named here and nowhere else.
#[derive(Clone, Debug)]
pub struct JobDir {
    path: PathBuf,
}

/// The directory of one trial.
#[derive(Clone, Debug)]
pub struct TrialDir {
    path: PathBuf,
}

/// Why a job has no directory.
#[derive(Debug, thiserror::Error)]
pub enum JobDirError {
    /// Something else has this name; it is not touched.
    #[error("{} exists already, and is no job directory; choose another --job-name, or move it away", .0.display())]
    Exists(PathBuf),
    /// Another process runs the job.
    #[error("job directory {} is in use by another run{}; wait for its end, or choose another --job-name", path.display(), by(.process))]
    Busy {
        /// The directory.
        path: PathBuf,
        /// Which process, if it said so.
        process: Option<u32>,
    },
    /// The name would lead elsewhere.
    #[error(
        "job name {0:?} is not usable: 1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit"
    )]
    Name(String),
    /// The file system said no.
    #[error("cannot create job directory {}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The name of a job that was given none: the local time, as Harbor writes it.
pub fn default_job_name(now: &Zoned) -> String {
    now.strftime("%Y-%m-%d__%H-%M-%S").to_string()
}

fn by(process: &Option<u32>) -> String {
    process.map(|process| format!(" (process {process})")).unwrap_or_default()
}

/// A job directory that is this process's alone, for as long as this lives. The system ends it with the process, however
/// that dies.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) dir: JobDir,
    /// Nothing of a job is in it.
    pub(crate) is_new: bool,
    _lock: File,
}

impl Claim {
    /// Takes the directory away again, if the job never started.
    pub(crate) fn abandon(self) {
        if self.is_new {
            self.dir.discard();
        }
    }
}

impl JobDir {
    /// Takes the directory of a job, made if need be, for this process alone.
    ///
    /// # Errors
    /// Another process has it, something else has its name, the name is not usable, or the file system refuses.
    pub(crate) fn claim(jobs_dir: &Path, name: &str) -> Result<Claim, JobDirError> {
        if TrialId::new(name).is_err() {
            return Err(JobDirError::Name(name.to_owned()));
        }
        let failed = |path: &Path, source| JobDirError::Create { path: path.to_owned(), source };
        fs::create_dir_all(jobs_dir).map_err(|source| failed(jobs_dir, source))?;
        let jobs_dir = jobs_dir.canonicalize().map_err(|source| failed(jobs_dir, source))?;
        let path = jobs_dir.join(name);
        let dir = Self { path: path.clone() };
        match fs::create_dir(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !dir.may_be_a_jobs().map_err(|source| failed(&path, source))? {
                    return Err(JobDirError::Exists(path));
                }
            }
            Err(error) => return Err(failed(&path, error)),
        }
        let lock = dir.lock().map_err(|source| failed(&path, source))?;
        match lock {
            Ok(lock) => Ok(Claim { is_new: !dir.config().exists(), dir, _lock: lock }),
            Err(process) => Err(JobDirError::Busy { path, process }),
        }
    }

    /// Whether a job began here, or nothing but its directory was made before its process died.
    fn may_be_a_jobs(&self) -> io::Result<bool> {
        if !self.path.is_dir() {
            return Ok(false);
        }
        let mut names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name()));
        let is_first = |name: &OsStr| BEFORE_CONFIG.iter().any(|first| name == *first);
        let nothing_else = names.all(|name: io::Result<OsString>| name.is_ok_and(|name| is_first(&name)));
        Ok(nothing_else || self.config().is_file())
    }

    /// The lock, or who has it.
    fn lock(&self) -> io::Result<Result<File, Option<u32>>> {
        let path = self.path.join(LOCK);
        let mut file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Ok(Err(fs::read_to_string(&path)?.trim().parse().ok()));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Ok(file))
    }

    /// One that is there.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Takes the directory away again, for a job that never started.
    pub(crate) fn discard(self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the directory of a job that never started");
        }
    }

    /// The directory itself, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The job's settings, as Harbor's `JobConfig`.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// Which versions of which tasks, as Harbor's `JobLock`.
    pub fn versions(&self) -> PathBuf {
        self.path.join("lock.json")
    }

    /// The job's result so far, as Harbor's `JobResult`.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// What happened, a line each.
    pub fn log(&self) -> PathBuf {
        self.path.join("job.log")
    }

    /// The capture store of an embedded proxy.
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// What Harbor lays over its compose files, where it runs the trials.
    pub(crate) fn compose_overlay(&self) -> PathBuf {
        self.path.join("harbor-compose.json")
    }

    /// The rollouts, a JSON line each.
    pub fn rollouts_jsonl(&self) -> PathBuf {
        self.path.join("rollouts.jsonl")
    }

    /// The rollouts as a Parquet file.
    pub fn rollouts_parquet(&self) -> PathBuf {
        self.path.join("rollouts.parquet")
    }

    /// The directory of a trial, which may not be there.
    pub(crate) fn trial(&self, name: &TrialId) -> TrialDir {
        TrialDir { path: self.path.join(name.as_str()) }
    }

    /// The trials whose directories are there, in order of their names.
    pub(crate) fn trials(&self) -> io::Result<Vec<TrialId>> {
        let entries = fs::read_dir(&self.path)?;
        let names =
            entries.map(|entry| Ok(entry?.file_name().to_str().and_then(|name| TrialId::new(name).ok())));
        let mut trials: Vec<_> = names.filter_map(io::Result::transpose).collect::<io::Result<_>>()?;
        trials.retain(|trial| self.trial(trial).config().is_file());
        trials.sort();
        Ok(trials)
    }

    /// Creates the directory of a trial and the folders in it.
    pub(crate) fn create_trial(&self, name: &str) -> io::Result<TrialDir> {
        let trial = TrialDir { path: self.path.join(name) };
        for folder in [trial.agent(), trial.verifier(), trial.artifacts()] {
            fs::create_dir_all(folder)?;
        }
        Ok(trial)
    }
}

impl TrialDir {
    /// Creates the directory of one step of the trial's task, laid out as a trial's own.
    pub(crate) fn create_step(&self, name: &str) -> io::Result<Self> {
        let step = Self { path: self.path.join("steps").join(name) };
        for folder in [step.agent(), step.verifier(), step.artifacts()] {
            fs::create_dir_all(folder)?;
        }
        Ok(step)
    }

    /// The directory itself, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The trial's settings, as Harbor's `TrialConfig`.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// The trial's result, as Harbor's `TrialResult`.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// What happened, a line each.
    pub fn log(&self) -> PathBuf {
        self.path.join("trial.log")
    }

    /// Why the trial failed; absent if it did not.
    pub fn exception(&self) -> PathBuf {
        self.path.join("exception.txt")
    }

    /// The agent's logs: its output or transcript, and what it wrote to `/logs/agent`.
    pub fn agent(&self) -> PathBuf {
        self.path.join("agent")
    }

    /// The verifier's output and reward files.
    pub fn verifier(&self) -> PathBuf {
        self.path.join("verifier")
    }

    /// What was collected from the environment.
    pub fn artifacts(&self) -> PathBuf {
        self.path.join("artifacts")
    }

    /// Where what lies in the environment's log directories goes, by Harbor's layout.
    pub fn logs(&self) -> LogDirs {
        LogDirs {
            agent: self.agent(),
            verifier: self.verifier(),
            artifacts: self.artifacts().join("logs/artifacts"),
        }
    }
}

/// Writes a JSON file whole or not at all: a reader never sees half of it.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    let draft = path.with_extension("json.tmp");
    fs::write(&draft, text)?;
    fs::rename(draft, path)
}

/// A log file of a job or trial. A line that cannot be written is dropped: a full disk shows elsewhere.
#[derive(Debug)]
pub(crate) struct Log {
    file: Mutex<File>,
}

impl Log {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: Mutex::new(OpenOptions::new().create(true).append(true).open(path)?) })
    }

    pub(crate) fn line(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        let line = format!("{:.3} {text}\n", Timestamp::now());
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, line = text, "cannot write to a log file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_like_harbors() {
        let now: Zoned = "2026-11-21T03:42:00[UTC]".parse().unwrap();
        assert_eq!(default_job_name(&now), "2026-11-21__03-42-00");
    }

    #[test]
    fn something_else_of_that_name_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("one")).unwrap();
        fs::write(dir.path().join("one/notes"), "precious").unwrap();
        fs::write(dir.path().join("two"), "precious").unwrap();
        for name in ["one", "two"] {
            let error = JobDir::claim(dir.path(), name).unwrap_err();
            assert!(matches!(error, JobDirError::Exists(_)), "{error}");
        }
        assert_eq!(fs::read_dir(dir.path().join("one")).unwrap().count(), 1);
    }

    #[test]
    fn a_jobs_directory_has_one_owner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = JobDir::claim(dir.path(), "one").unwrap();
        assert!(first.is_new);
        let error = JobDir::claim(dir.path(), "one").unwrap_err().to_string();
        assert!(error.contains(&format!("another run (process {})", std::process::id())), "{error}");
        fs::write(first.dir.config(), "{}").unwrap();
        drop(first);
        assert!(!JobDir::claim(dir.path(), "one").unwrap().is_new);
    }

    #[test]
    fn a_directory_that_a_dead_process_only_made_is_as_good_as_new() {
        let dir = tempfile::tempdir().unwrap();
        let claim = JobDir::claim(dir.path(), "one").unwrap();
        fs::write(claim.dir.versions(), "{}").unwrap();
        drop(claim);
        assert!(JobDir::claim(dir.path(), "one").unwrap().is_new);
    }

    #[test]
    fn a_name_cannot_lead_out_of_the_jobs_directory() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", "..", "a/b", "../x", ".hidden"] {
            assert!(matches!(JobDir::claim(dir.path(), name), Err(JobDirError::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn json_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result.json");
        write_json(&path, &[1, 2]).unwrap();
        write_json(&path, &[3]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  3\n]\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }
}
