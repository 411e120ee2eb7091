//! Prevents forks while an executable is written.
//!
//! Between fork and exec, a new process has every open file of this process. If such a file is an executable that is
//! being written, it cannot be executed even after this process has closed it: "Text file busy". A test script is
//! executed right after its upload, and failed so when many trials ran at once. So writes and forks exclude each other,
//! as in Go's runtime (`syscall.ForkLock`).

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

static FORKS: RwLock<()> = RwLock::new(());

/// Returns a guard to hold while an executable is written, from before it is opened until it is closed. Several writers
/// may hold one.
pub(super) fn held_off() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Spawns a process when no executable is being written.
pub(super) fn allowed<T>(spawn: impl FnOnce() -> T) -> T {
    let _allowed = FORKS.write().unwrap_or_else(PoisonError::into_inner);
    spawn()
}
