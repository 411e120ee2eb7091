//! Locks a job's directory for one process.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rolltap_rollout::ids::TrialId;

use super::JobDir;

/// The file with the id of the process that runs the job. That process holds a lock on the file.
const LOCK: &str = ".running";

/// The files that a job directory may have before its `config.json` exists.
const BEFORE_CONFIG: [&str; 4] = [LOCK, "lock.json", "lock.json.tmp", "config.json.tmp"];

/// Why a job directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JobDirError {
    /// The path exists and is not a job directory. It is not touched.
    #[error("{} exists already, and is no job directory; choose another --job-name, or move it away", .0.display())]
    Exists(PathBuf),
    /// Another process runs the job.
    #[error("job directory {} is in use by another run{}; wait for its end, or choose another --job-name", path.display(), by(.process))]
    Busy {
        /// The directory.
        path: PathBuf,
        /// The id of that process, if it is recorded.
        process: Option<u32>,
    },
    /// The name is not usable as the name of a directory.
    #[error(
        "job name {0:?} is not usable: 1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit"
    )]
    Name(String),
    /// The directory cannot be created.
    #[error("cannot create job directory {}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

fn by(process: &Option<u32>) -> String {
    process.map(|process| format!(" (process {process})")).unwrap_or_default()
}

/// Exclusive access to a job directory for the lifetime of this value. The system releases the lock when the process
/// ends, even if it is killed.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) dir: JobDir,
    /// Whether the directory has no `config.json` yet.
    pub(crate) is_new: bool,
    _lock: File,
}

impl Claim {
    /// Removes the directory again if it is new. Called if the job did not start.
    pub(crate) fn abandon(self) {
        if self.is_new {
            let path = self.dir.path();
            if let Err(error) = fs::remove_dir_all(path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove the directory of a job that never started");
            }
        }
    }
}

impl JobDir {
    /// Claims the directory of a job for this process, and creates it if necessary.
    ///
    /// # Errors
    /// Fails if another process has the directory, the path exists and is not a job directory, the name is invalid, or
    /// the file system refuses.
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

    /// Returns the process that runs the job: its id, or `None` if the id is not recorded. `None` if no process runs the
    /// job. Nothing is written.
    pub fn runner(&self) -> Option<Option<u32>> {
        let path = self.path.join(LOCK);
        let file = File::open(&path).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(fs::read_to_string(&path).ok()?.trim().parse().ok()),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    /// Returns whether this is the directory of a job, or a directory whose process died before it wrote `config.json`.
    fn may_be_a_jobs(&self) -> io::Result<bool> {
        if !self.path.is_dir() {
            return Ok(false);
        }
        let mut names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name()));
        let is_first = |name: &OsStr| BEFORE_CONFIG.iter().any(|first| name == *first);
        let nothing_else = names.all(|name: io::Result<OsString>| name.is_ok_and(|name| is_first(&name)));
        Ok(nothing_else || self.config().is_file())
    }

    /// Returns the lock, or the id of the process that holds it.
    fn lock(&self) -> io::Result<Result<File, Option<u32>>> {
        let path = self.path.join(LOCK);
        let mut file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path)?;
        // A lock of the system ends with its process, unlike a file whose existence is the lock.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Ok(Err(fs::read_to_string(&path)?.trim().parse().ok()));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The id of the earlier process may be longer.
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Ok(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(first.dir.runner(), Some(Some(std::process::id())));
        fs::write(first.dir.config(), "{}").unwrap();
        drop(first);
        assert!(!JobDir::claim(dir.path(), "one").unwrap().is_new);
        assert_eq!(JobDir::at(&dir.path().join("one")).runner(), None);
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
}
