//! Finds the tasks that a job's file names: directories, directories of directories, and git repositories.

pub(super) mod fnmatch;
mod git;

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;

pub use git::GitError;

use super::config::{DatasetRef, JobConfig, TaskRef};
use crate::task::{GitOrigin, Runner, Task, TaskError};

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
    /// No task matches the patterns.
    #[error("dataset {}: no task matches {}; there are: {}", path.display(), patterns.join(", "), names.join(", "))]
    NoMatch {
        /// The dataset.
        path: PathBuf,
        /// The patterns.
        patterns: Vec<String>,
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

/// Returns all tasks that a job's file names. Single tasks come first, as in Harbor. Missing tasks are fetched.
///
/// # Errors
/// Fails at the first task that cannot be loaded.
pub fn find(job: &JobConfig, runner: Runner) -> BoxFuture<'_, Result<Vec<JobTask>, TasksError>> {
    // Boxed for the reason given at `run_job`.
    Box::pin(find_all(job, runner))
}

async fn find_all(job: &JobConfig, runner: Runner) -> Result<Vec<JobTask>, TasksError> {
    let mut found = Vec::new();
    for task in &job.tasks {
        found.push(single(task, runner).await?);
    }
    for dataset in &job.datasets {
        found.extend(of_dataset(dataset, runner)?);
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

fn is_task(dir: &Path) -> bool {
    dir.join("task.toml").exists()
}

async fn single(reference: &TaskRef, runner: Runner) -> Result<JobTask, TasksError> {
    let path = reference.path.clone().unwrap_or_default();
    let source = reference.source.clone();
    let Some(url) = &reference.git_url else {
        return Ok(JobTask { task: Task::load_for(&path, runner)?, source, git: None });
    };
    let wanted = git::Wanted {
        url,
        commit: reference.git_commit_id.as_deref(),
        path: &path,
        cache: reference.download_dir.as_deref(),
        anew: reference.overwrite,
    };
    let (dir, origin) = git::fetch(wanted).await?;
    Ok(JobTask { task: Task::load_for(&dir, runner)?, source, git: Some(origin) })
}

/// Loads the tasks of a directory in order of their names. Directories that the patterns exclude are not loaded, so
/// they may be invalid.
fn of_dataset(dataset: &DatasetRef, runner: Runner) -> Result<Vec<JobTask>, TasksError> {
    let path = dataset.path.clone().unwrap_or_default();
    // The dataset has the name of its directory, which a path such as `.` lacks.
    let root = path.canonicalize().map_err(|_| TaskError::NotADirectory(path.clone()))?;
    let unreadable = |source| TaskError::Read { path: path.clone(), source };
    let mut dirs = Vec::new();
    for entry in root.read_dir().map_err(unreadable)? {
        let dir = entry.map_err(unreadable)?.path();
        if is_task(&dir) {
            dirs.push(dir);
        }
    }
    dirs.sort();
    if dirs.is_empty() {
        return Err(TaskError::NothingFound(path).into());
    }
    let source = root.file_name().map(|name| name.to_string_lossy().into_owned());
    let load =
        |dir: PathBuf| Ok(JobTask { task: Task::load_for(&dir, runner)?, source: source.clone(), git: None });
    chosen(dataset, path, dirs)?.into_iter().map(load).collect()
}

fn chosen(dataset: &DatasetRef, path: PathBuf, dirs: Vec<PathBuf>) -> Result<Vec<PathBuf>, TasksError> {
    let name = |dir: &PathBuf| dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let matches = |dir: &PathBuf, patterns: &[String]| {
        let name = name(dir);
        patterns.iter().any(|pattern| fnmatch::matches(pattern, &name))
    };
    let names: Vec<_> = dirs.iter().take(5).map(name).collect();
    let mut left = dirs;
    // Harbor takes an empty list as absent.
    if let Some(patterns) = dataset.task_names.as_ref().filter(|patterns| !patterns.is_empty()) {
        left.retain(|dir| matches(dir, patterns));
        if left.is_empty() {
            return Err(TasksError::NoMatch { path, patterns: patterns.clone(), names });
        }
    }
    if let Some(patterns) = &dataset.exclude_task_names {
        left.retain(|dir| !matches(dir, patterns));
    }
    // The limit applies after the patterns, as in Harbor.
    left.truncate(dataset.n_tasks.unwrap_or(usize::MAX));
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(
        task_names: &[&str],
        exclude: &[&str],
        n_tasks: Option<usize>,
    ) -> Result<Vec<String>, TasksError> {
        let list = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let dataset = DatasetRef {
            path: None,
            task_names: list(task_names).filter(|list| !list.is_empty()),
            exclude_task_names: list(exclude),
            n_tasks,
        };
        let dirs = ["d/add-1", "d/add-2", "d/sort"].map(PathBuf::from).to_vec();
        let left = chosen(&dataset, PathBuf::from("d"), dirs)?;
        Ok(left.iter().map(|dir| dir.display().to_string()).collect())
    }

    #[test]
    fn patterns_choose_and_leave_out_and_a_number_cuts_off() {
        assert_eq!(dataset(&[], &[], None).unwrap().len(), 3);
        assert_eq!(dataset(&["add-*"], &[], None).unwrap(), ["d/add-1", "d/add-2"]);
        assert_eq!(dataset(&["add-*"], &["*-1"], None).unwrap(), ["d/add-2"]);
        assert_eq!(dataset(&[], &["add-1"], Some(1)).unwrap(), ["d/add-2"]);
        let error = dataset(&["sub-*"], &[], None).unwrap_err().to_string();
        assert_eq!(error, "dataset d: no task matches sub-*; there are: add-1, add-2, sort");
    }
}
