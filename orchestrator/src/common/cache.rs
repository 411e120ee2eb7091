//! What is made once and kept for all jobs of a user.

use std::fs::File;
use std::io;
use std::path::PathBuf;

/// A variable that holds a path; none where it is empty.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// `$XDG_CACHE_HOME/rolltap`, or `~/.cache/rolltap`.
pub(crate) fn of_user() -> Option<PathBuf> {
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("rolltap"))
}

/// Waits until no other process has its turn with this file, and says so first if one has. Held as long as the file is open;
/// a process that dies lets go.
pub(crate) async fn turn(path: PathBuf, waits: impl FnOnce()) -> io::Result<File> {
    let file = File::create(path)?;
    if file.try_lock().is_ok() {
        return Ok(file);
    }
    waits();
    tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await.map_err(io::Error::other)?
}
