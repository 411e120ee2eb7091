//! Controls when written records also survive the death of the machine.

use std::fmt;
use std::fs::File;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// When written records are made durable (`fdatasync`). With every policy they survive the death of the process at
/// once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before the write is acknowledged.
    Always,
    /// At most 50 ms later.
    #[default]
    Interval,
    /// When the operating system decides, and at shutdown.
    Off,
}

impl SyncPolicy {
    /// The names, as configurations and flags have them.
    pub const NAMES: [&str; 3] = ["always", "interval", "off"];
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::Interval => "interval",
            Self::Off => "off",
        })
    }
}

impl FromStr for SyncPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "interval" => Ok(Self::Interval),
            "off" => Ok(Self::Off),
            other => Err(format!("{other:?} is not one of always, interval, off")),
        }
    }
}

const INTERVAL: Duration = Duration::from_millis(50);

/// The files that wait for their fsync in a separate thread, so that the writer does not wait for the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced(Arc<(Mutex<FsyncState>, Condvar)>);

#[derive(Debug, Default)]
struct FsyncState {
    /// Each file once, in the order of the first write. A second one is rare: a segment that begins within `INTERVAL`.
    written: Vec<Arc<File>>,
    is_over: bool,
}

/// Ends the fsync thread when it is dropped.
#[derive(Debug)]
pub(crate) struct OverOnDrop(Unsynced);

impl Drop for OverOnDrop {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.0.1.notify_one();
    }
}

impl Unsynced {
    /// Schedules an fsync of this file.
    pub(crate) fn wrote(&self, file: &Arc<File>) {
        let mut state = self.lock();
        if !state.written.iter().any(|written| Arc::ptr_eq(written, file)) {
            state.written.push(Arc::clone(file));
            self.0.1.notify_one();
        }
    }

    /// Returns a guard for the thread that writes. When the guard drops, also by a panic, the fsync thread ends.
    pub(crate) fn over_on_drop(&self) -> OverOnDrop {
        OverOnDrop(self.clone())
    }

    /// Syncs files until the guard drops, and calls `failed` for each error.
    pub(crate) fn run(&self, failed: impl Fn(&std::io::Error)) {
        loop {
            let state = self.0.1.wait_while(self.lock(), |state| state.written.is_empty() && !state.is_over);
            drop(state);
            // Records that are written during this wait share the fsync.
            let waited = self.0.1.wait_timeout_while(self.lock(), INTERVAL, |state| !state.is_over);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                // The writer syncs its last segment itself.
                return;
            }
            let written = std::mem::take(&mut state.written);
            // The lock is released before the slow fsync, because the writer needs it.
            drop(state);
            written.iter().filter_map(|file| file.sync_data().err()).for_each(|error| failed(&error));
        }
    }

    fn lock(&self) -> MutexGuard<'_, FsyncState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rolltap_testing::limit;

    use super::*;

    #[test]
    fn a_new_file_is_synced_although_another_one_waits() {
        // Every fsync of this device fails, and is therefore reported.
        let device = || Arc::new(File::open("/dev/null").unwrap());
        let (first, second) = (device(), device());
        let unsynced = Unsynced::default();
        let is_over = unsynced.over_on_drop();
        [&first, &first, &second, &first].into_iter().for_each(|file| unsynced.wrote(file));
        let (tell, reported) = mpsc::channel();
        let run = std::thread::spawn(move || unsynced.run(|_| tell.send(()).unwrap()));
        for file in ["first", "second"] {
            reported.recv_timeout(limit(5)).expect(file);
        }
        drop(is_over);
        run.join().unwrap();
        assert!(reported.try_recv().is_err(), "each file once");
    }
}
