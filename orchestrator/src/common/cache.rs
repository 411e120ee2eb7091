//! The cache of a user: files that are made once and shared by all jobs.

use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Returns the path in an environment variable, or `None` if the variable is unset or empty.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns `$XDG_CACHE_HOME/rolltap`, or `~/.cache/rolltap`. `None` if neither variable is set.
pub(crate) fn of_user() -> Option<PathBuf> {
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("rolltap"))
}

/// Locks the file at `path`, which it creates, and calls `waits` first if another process has the lock. The lock is
/// held until the returned file is closed; the system releases it when the process dies.
pub(crate) async fn turn(path: PathBuf, waits: impl FnOnce()) -> io::Result<File> {
    let file = File::create(path)?;
    if file.try_lock().is_ok() {
        return Ok(file);
    }
    // `File::lock` blocks until the other process releases the lock, which may take minutes.
    waits();
    tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await.map_err(io::Error::other)?
}
