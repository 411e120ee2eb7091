//! Finding tasks.

use std::path::Path;

use super::{CONFIG, Runner, Task, TaskError};

/// The task at `path`, or all tasks in the directory `path`, sorted by name.
///
/// Sub-directories without `task.toml` are passed over; one with a `task.toml` that is wrong is an error.
///
/// # Errors
/// Nothing found, or the first task that cannot be loaded.
pub fn discover(path: &Path) -> Result<Vec<Task>, TaskError> {
    discover_for(path, Runner::Rolltap)
}

/// The same, for one of those that run trials.
///
/// # Errors
/// Nothing found, or the first task that cannot be loaded.
pub fn discover_for(path: &Path, runner: Runner) -> Result<Vec<Task>, TaskError> {
    if !path.is_dir() {
        return Err(TaskError::NotADirectory(path.to_owned()));
    }
    if path.join(CONFIG).exists() {
        return Ok(vec![Task::load_for(path, runner)?]);
    }
    let unreadable = |source| TaskError::Read { path: path.to_owned(), source };
    let mut tasks = Vec::new();
    for entry in path.read_dir().map_err(unreadable)? {
        let dir = entry.map_err(unreadable)?.path();
        if dir.join(CONFIG).exists() {
            tasks.push(Task::load_for(&dir, runner)?);
        }
    }
    tasks.sort_by(|one, other| one.name.cmp(&other.name));
    if tasks.is_empty() { Err(TaskError::NothingFound(path.to_owned())) } else { Ok(tasks) }
}
