//! Finds tasks on disk.

use std::path::{Path, PathBuf};

use super::{CONFIG, Task, TaskError};

/// Loads the task at `path`, or all tasks in the directory `path`, sorted by name.
///
/// Skips sub-directories without `task.toml`. A sub-directory with a wrong `task.toml` is an error.
///
/// # Errors
/// There is no task, or a task cannot be loaded: the first one.
pub fn discover(path: &Path) -> Result<Vec<Task>, TaskError> {
    let mut tasks = directories(path)?.iter().map(|dir| Task::load(dir)).collect::<Result<Vec<_>, _>>()?;
    tasks.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(tasks)
}

/// Returns `path` if it is a task directory, or else the task directories in it, sorted by path. A directory with
/// `task.toml` is a task, whatever its sub-directories contain.
///
/// # Errors
/// There is no task, or the directory cannot be read.
pub fn directories(path: &Path) -> Result<Vec<PathBuf>, TaskError> {
    if !path.is_dir() {
        return Err(TaskError::NotADirectory(path.to_owned()));
    }
    if path.join(CONFIG).exists() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |source| TaskError::Read { path: path.to_owned(), source };
    let mut dirs = Vec::new();
    for entry in path.read_dir().map_err(unreadable)? {
        let dir = entry.map_err(unreadable)?.path();
        if dir.join(CONFIG).exists() {
            dirs.push(dir);
        }
    }
    dirs.sort();
    if dirs.is_empty() { Err(TaskError::NothingFound(path.to_owned())) } else { Ok(dirs) }
}
