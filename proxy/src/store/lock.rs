//! A data directory belongs to one process at a time.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use super::StoreError;

/// Given back by the system when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct DirLock(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

impl DirLock {
    /// Takes the directory, made where it is missing.
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
                let by = match file.read_to_string(&mut by) {
                    Ok(1..) => format!(" (process {})", by.trim()),
                    _ => String::new(),
                };
                return Err(StoreError::InUse { path: dir.display().to_string(), by });
            }
            Err(TryLockError::Error(error)) => return Err(refused(error)),
        }
        let note =
            file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
        note.map_err(refused)?;
        Ok(Self(file))
    }
}

/// What agents said is nobody else's to read.
fn make(dir: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
