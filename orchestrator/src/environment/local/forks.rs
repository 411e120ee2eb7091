//! Executables are not written while a process is forked.
//!
//! Between its fork and its program a new process holds open what this one has open. If that is a file being written, the
//! file cannot be executed yet though it is whole and closed here: "Text file busy". A test script, which is executed as
//! soon as it lies there, met that when many trials ran at once. So writes and forks exclude each other, as in Go's runtime
//! (`syscall.ForkLock`).

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

static FORKS: RwLock<()> = RwLock::new(());

/// To be held while an executable is written: from before it is opened until it is closed.
pub(super) fn held_off() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Spawns a process, once no executable is being written.
pub(super) fn allowed<T>(spawn: impl FnOnce() -> T) -> T {
    let _allowed = FORKS.write().unwrap_or_else(PoisonError::into_inner);
    spawn()
}
