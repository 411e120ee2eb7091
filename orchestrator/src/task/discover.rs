//! Finding tasks.

use std::path::Path;

use super::{CONFIG, Task, TaskError};

/// The task at `path`, or all tasks in the directory `path`, sorted by name.
///
/// Sub-directories without `task.toml` are passed over; one with a `task.toml` that is wrong is an error.
///
/// # Errors
/// Nothing found, or the first task that cannot be loaded.
pub fn discover(path: &Path) -> Result<Vec<Task>, TaskError> {
    if !path.is_dir() {
        return Err(TaskError::NotADirectory(path.to_owned()));
    }
    if path.join(CONFIG).exists() {
        return Ok(vec![Task::load(path)?]);
    }
    let unreadable = |source| TaskError::Read { path: path.to_owned(), source };
    let mut tasks = Vec::new();
    for entry in path.read_dir().map_err(unreadable)? {
        let dir = entry.map_err(unreadable)?.path();
        if dir.join(CONFIG).exists() {
            tasks.push(Task::load(&dir)?);
        }
    }
    tasks.sort_by(|one, other| one.name.cmp(&other.name));
    if tasks.is_empty() { Err(TaskError::NothingFound(path.to_owned())) } else { Ok(tasks) }
}
