//! Finds the tasks that a job's file names: directories, directories of directories, git repositories, and entries of
//! registry files.

mod argument;
mod dataset;
pub(super) mod fnmatch;
mod git;
mod registry;
mod repo;

use std::path::Path;

use futures_util::future::BoxFuture;

pub use argument::{ArgumentError, DatasetArguments};
pub use git::GitError;
pub use registry::RegistryError;
pub use repo::InvalidRepo;

use super::config::{DatasetRef, JobConfig, TaskRef};
use crate::common::suggest::did_you_mean;
use crate::job::UnusableTask;
use crate::task::{Examined, GitOrigin, Runner, Task, TaskError, TaskWarning, summed_up};

/// A task of a job.
#[derive(Clone, Debug)]
pub struct JobTask {
    /// The task.
    pub task: Task,
    /// The dataset that the task belongs to. `None` for a single task.
    pub source: Option<String>,
    /// The repository of the task. `None` for a task of this host.
    pub git: Option<GitOrigin>,
}

/// Why a job's tasks cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TasksError {
    /// A directory is not a task, or rolltap cannot run the task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A task cannot be fetched from git.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The keys of a dataset give no place of it.
    #[error("{0}")]
    Dataset(String),
    /// The repository of a dataset has no valid source.
    #[error(transparent)]
    Repo(#[from] InvalidRepo),
    /// A dataset cannot be taken from a registry file.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// No task matches the patterns.
    #[error(
        "dataset {dataset}: no task matches {}{}; there are: {}",
        patterns.join(", "), did_you_mean(suggestion.as_deref()), names.join(", ")
    )]
    NoMatch {
        /// The dataset.
        dataset: String,
        /// The patterns.
        patterns: Vec<String>,
        /// The name that is nearest to a pattern.
        suggestion: Option<String>,
        /// The first five names of the dataset.
        names: Vec<String>,
    },
}

impl From<Task> for JobTask {
    /// Makes a single task of this host.
    fn from(task: Task) -> Self {
        Self { task, source: None, git: None }
    }
}

/// The tasks that a job's file names.
#[derive(Debug, Default)]
pub struct Found {
    /// The tasks that can be loaded.
    pub tasks: Vec<JobTask>,
    /// The task directories that cannot be loaded.
    pub unusable: Vec<UnusableTask>,
    warnings: Vec<TaskWarning>,
}

impl Found {
    /// Loads the task in `dir`, or notes what is wrong with it.
    fn add(&mut self, dir: &Path, runner: Runner, source: Option<String>, git: Option<GitOrigin>) {
        let Examined { task, warnings } = Task::examine(dir, runner);
        self.warnings.extend(warnings);
        match task {
            Ok(task) => self.tasks.push(JobTask { task, source, git }),
            Err(errors) => self.unusable.push(UnusableTask::of(dir, &errors)),
        }
    }
}

/// Returns all tasks that a job's file names. Single tasks come first, as in Harbor. Missing tasks are fetched. The
/// warnings of all tasks are logged together.
///
/// # Errors
/// Fails if there is no task, or if one cannot be fetched.
pub fn find(job: &JobConfig, runner: Runner) -> BoxFuture<'_, Result<Found, TasksError>> {
    // Boxed for the reason given at `run_job`.
    Box::pin(find_all(job, runner))
}

async fn find_all(job: &JobConfig, runner: Runner) -> Result<Found, TasksError> {
    let mut found = Found::default();
    for task in &job.tasks {
        single(task, runner, &mut found).await?;
    }
    for dataset in &job.datasets {
        dataset::load(dataset, runner, &mut found).await?;
    }
    for line in summed_up(&found.warnings) {
        tracing::warn!("{line}");
    }
    Ok(found)
}

/// Adds a path of the command line to the job: as a task if it has a `task.toml`, otherwise as a dataset.
///
/// # Errors
/// Fails if the path is not a directory.
pub fn at_path(job: &mut JobConfig, path: &Path) -> Result<(), TasksError> {
    if !path.is_dir() {
        return Err(TaskError::NotADirectory(path.to_owned()).into());
    }
    let path = Some(path.to_owned());
    if is_task(path.as_deref().unwrap_or(Path::new(""))) {
        job.tasks.push(TaskRef { path, ..TaskRef::default() });
    } else {
        job.datasets.push(DatasetRef { path, ..DatasetRef::default() });
    }
    Ok(())
}

/// Returns whether the directory has a `task.toml`. An unreadable directory counts as a task, so that it is reported.
fn is_task(dir: &Path) -> bool {
    dir.is_dir() && !matches!(dir.join("task.toml").try_exists(), Ok(false))
}

async fn single(reference: &TaskRef, runner: Runner, found: &mut Found) -> Result<(), TasksError> {
    let path = reference.path.clone().unwrap_or_default();
    let source = reference.source.clone();
    let Some(url) = &reference.git_url else {
        found.add(&path, runner, source, None);
        return Ok(());
    };
    let wanted = git::Wanted {
        url,
        commit: reference.git_commit_id.as_deref(),
        path: &path,
        cache: reference.download_dir.as_deref(),
        anew: reference.overwrite,
    };
    let (dir, origin) = git::fetch(wanted).await?;
    found.add(&dir, runner, source, Some(origin));
    Ok(())
}
