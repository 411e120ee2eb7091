//! Locks a data directory for one process at a time.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use super::StoreError;

/// The lock of a data directory. The system releases it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct DirLock(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

impl DirLock {
    /// Locks the directory, and creates it if it is missing.
    pub(super) fn take(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("LOCK");
        let open = || {
            make(dir)?;
            let mut options = File::options();
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            options.create(true).truncate(false).read(true).write(true).open(&path)
        };
        let refused = |error: std::io::Error| StoreError::Write {
            path: path.display().to_string(),
            reason: error.to_string(),
        };
        let mut file = open().map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut by = String::new();
                // The file contains the process id of the holder. It may still be empty.
                let by = match file.read_to_string(&mut by) {
                    Ok(1..) => format!(" (process {})", by.trim()),
                    _ => String::new(),
                };
                return Err(StoreError::InUse { path: dir.display().to_string(), by });
            }
            Err(TryLockError::Error(error)) => return Err(refused(error)),
        }
        // The process id is written under the lock, so it is always that of the holder.
        let note =
            file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
        note.map_err(refused)?;
        Ok(Self(file))
    }
}

/// Creates the directory for its owner alone, because captures contain prompts and answers.
fn make(dir: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
