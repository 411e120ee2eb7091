//! Finds tasks on disk.

use std::path::Path;

use super::ignored::warn_of_ignored_keys;
use super::{CONFIG, Runner, Task, TaskError};

/// Loads the task at `path`, or all tasks in the directory `path`, sorted by name.
///
/// Skips sub-directories without `task.toml`. A sub-directory with a wrong `task.toml` is an error.
///
/// # Errors
/// There is no task, or a task cannot be loaded: the first one.
pub fn discover(path: &Path) -> Result<Vec<Task>, TaskError> {
    discover_for(path, Runner::Rolltap)
}

/// As `discover`, for the given runner of trials.
///
/// # Errors
/// There is no task, or a task cannot be loaded: the first one.
pub fn discover_for(path: &Path, runner: Runner) -> Result<Vec<Task>, TaskError> {
    if !path.is_dir() {
        return Err(TaskError::NotADirectory(path.to_owned()));
    }
    // A directory with `task.toml` is a task, whatever its sub-directories contain.
    if path.join(CONFIG).exists() {
        let task = Task::load_for(path, runner)?;
        warn_of_ignored_keys([&task]);
        return Ok(vec![task]);
    }
    let unreadable = |source| TaskError::Read { path: path.to_owned(), source };
    let mut tasks = Vec::new();
    for entry in path.read_dir().map_err(unreadable)? {
        let dir = entry.map_err(unreadable)?.path();
        if dir.join(CONFIG).exists() {
            tasks.push(Task::load_for(&dir, runner)?);
        }
    }
    warn_of_ignored_keys(&tasks);
    tasks.sort_by(|one, other| one.name.cmp(&other.name));
    if tasks.is_empty() { Err(TaskError::NothingFound(path.to_owned())) } else { Ok(tasks) }
}
