//! The files of a worker: tasks, which remain, and the folders of running trials.
//!
//! ```text
//! DIR/.running                 the lock of the process
//!     tasks/SHA256/NAME/       the directory of a task
//!     jobs/JOB/TRIAL/          the folder of a running trial
//! ```

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rolltap_cluster::objects::{ArchiveError, Content, FileStore};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::common::cache;
use crate::environment::{EnvironmentError, unpack_folder};
use crate::job_dir::JobDir;
use crate::task::TaskFiles;
use crate::trial::runner::workers::description::DescribedTask;

/// Why a directory cannot be that of a worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerDirError {
    /// Neither an option nor a variable names it.
    #[error("no directory for tasks and trials: give --dir, or set HOME")]
    None,
    /// Another worker uses it.
    #[error("another worker of this host uses {}: give each a --dir of its own", .0.display())]
    Busy(PathBuf),
    /// It cannot be used.
    #[error("cannot use the directory {}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

/// Why the directory of a task is not there.
#[derive(Debug, thiserror::Error)]
pub(super) enum TaskFetchError {
    #[error(transparent)]
    Object(#[from] ArchiveError),
    #[error(transparent)]
    Unpack(#[from] EnvironmentError),
    #[error("the task cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error(
        "the task {0:?} arrived with other files than it was sent with; a link that leads out of the task does not travel"
    )]
    Differs(String),
}

/// A task on this host. Its files never change.
#[derive(Debug)]
pub(super) struct LocalTask {
    pub(super) dir: PathBuf,
    pub(super) files: TaskFiles,
}

/// The directory of this worker. No other worker uses it while this value lives.
#[derive(Debug)]
pub(super) struct WorkerDir {
    path: PathBuf,
    tasks: Mutex<HashMap<Content, Arc<OnceCell<Arc<LocalTask>>>>>,
    _lock: File,
}

impl WorkerDir {
    /// Takes the directory, and removes the folders of trials that a dead worker left.
    pub(super) fn claim(path: Option<PathBuf>) -> Result<Self, WorkerDirError> {
        let of_user = || Some(cache::of_user()?.join("worker"));
        let path = path.or_else(of_user).ok_or(WorkerDirError::None)?;
        let failed = |source| WorkerDirError::Io { path: path.clone(), source };
        fs::create_dir_all(path.join("tasks")).map_err(failed)?;
        let lock = File::create(path.join(".running")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(WorkerDirError::Busy(path)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let jobs = path.join("jobs");
        match fs::remove_dir_all(&jobs) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => fs::create_dir_all(&jobs).map_err(failed)?,
        }
        let path = path.canonicalize().map_err(failed)?;
        Ok(Self { path, tasks: Mutex::default(), _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory of a job.
    pub(super) fn job(&self, id: Uuid) -> io::Result<JobDir> {
        let path = self.path.join("jobs").join(id.to_string());
        fs::create_dir_all(&path)?;
        Ok(JobDir::at(&path))
    }

    /// Returns a task, which is fetched if it is not there. Trials that ask at the same time share the work.
    pub(super) async fn task(
        &self,
        task: &DescribedTask,
        objects: &FileStore,
    ) -> Result<Arc<LocalTask>, TaskFetchError> {
        let cell = Arc::clone(
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).entry(task.content).or_default(),
        );
        cell.get_or_try_init(|| self.fetched(task, objects)).await.cloned()
    }

    async fn fetched(
        &self,
        task: &DescribedTask,
        objects: &FileStore,
    ) -> Result<Arc<LocalTask>, TaskFetchError> {
        let place = self.path.join("tasks").join(task.content.sha256.to_string());
        let dir = place.join(&task.directory);
        let is_whole = |files: &TaskFiles| files.checksum() == task.checksum;
        if dir.is_dir() {
            let files = read(&dir).await?;
            if is_whole(&files) {
                return Ok(Arc::new(LocalTask { dir, files }));
            }
            tracing::warn!(dir = %dir.display(), "a task on this host was changed, and is fetched again");
            tokio::fs::remove_dir_all(&place).await?;
        }
        let draft = tempfile::Builder::new().prefix(".new-").tempdir_in(self.path.join("tasks"))?;
        let archive = draft.path().join(".archive");
        objects.fetch(&task.content, &archive).await?;
        let (from, to, whole) = (archive, draft.path().join(&task.directory), draft.path().to_owned());
        let unpack = move || {
            unpack_folder(&from, &to, &[])?;
            fs::remove_file(&from)?;
            Ok::<_, TaskFetchError>(fs::rename(&whole, &place)?)
        };
        tokio::task::spawn_blocking(unpack).await.map_err(io::Error::other)??;
        // The directory has another name now.
        let _ = draft.keep();
        let files = read(&dir).await?;
        match is_whole(&files) {
            true => Ok(Arc::new(LocalTask { dir, files })),
            false => Err(TaskFetchError::Differs(task.directory.clone())),
        }
    }
}

async fn read(dir: &Path) -> io::Result<TaskFiles> {
    let dir = dir.to_owned();
    tokio::task::spawn_blocking(move || TaskFiles::read(&dir)).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_uses_a_directory_and_removes_the_folders_of_a_dead_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("worker");
        let first = WorkerDir::claim(Some(path.clone())).unwrap();
        let job = first.job(Uuid::nil()).unwrap();
        fs::write(job.path().join("left"), "").unwrap();
        fs::write(first.path().join("tasks/kept"), "").unwrap();
        let busy = WorkerDir::claim(Some(path.clone())).unwrap_err();
        assert!(matches!(busy, WorkerDirError::Busy(_)), "{busy}");
        drop(first);
        let second = WorkerDir::claim(Some(path)).unwrap();
        assert!(!job.path().exists());
        assert!(second.path().join("tasks/kept").exists());
    }
}
