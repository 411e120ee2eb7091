//! A disk that fails on request, and a wall clock that jumps: a C library (`shim.c`) that overrides the proxy's own functions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The fault of the capture files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Every write is an I/O error.
    WriteError,
    /// Half of a write succeeds, and then there is no space.
    HalfWrite,
    /// A write takes seven bytes at most, which is no fault.
    ShortWrite,
    /// A write takes 30 ms.
    SlowWrite,
    /// Writes succeed, but each fsync is an I/O error.
    SyncError,
}

/// The faults of one proxy's disk.
pub(crate) struct Shim {
    library: PathBuf,
    control: PathBuf,
}

/// The wall clock of a process.
pub(crate) struct Clock {
    control: PathBuf,
}

impl Clock {
    /// Lets the clock be wrong by this many seconds, or right again with 0.
    pub(crate) fn jump(&self, seconds: i64) {
        let new = self.control.with_extension("new");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(&new, &self.control).unwrap();
    }
}

impl Shim {
    /// Compiles the library into `dir`.
    pub(crate) fn compile(dir: &Path) -> Self {
        let (library, control) = (dir.join("shim.so"), dir.join("fault"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/crash/shim.c");
        let mut command = Command::new("cc");
        command
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&library)
            .args([source, "-ldl"]);
        let output =
            command.output().unwrap_or_else(|error| panic!("cc, the C compiler, cannot be run: {error}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { library, control }
    }

    /// Returns the environment variables with which a proxy's disk can fail.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        vec![
            ("LD_PRELOAD".to_owned(), text(&self.library)),
            ("FAULT_CONTROL".to_owned(), text(&self.control)),
        ]
    }

    /// Returns the environment variables with which the wall clock of a process can jump, and the clock.
    pub(crate) fn clock(&self, control: PathBuf) -> (Vec<(String, String)>, Clock) {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let variables = vec![
            ("LD_PRELOAD".to_owned(), text(&self.library)),
            ("CLOCK_CONTROL".to_owned(), text(&control)),
        ];
        (variables, Clock { control })
    }

    pub(crate) fn fails(&self, fault: Fault) {
        let word = match fault {
            Fault::WriteError => "write-error",
            Fault::HalfWrite => "half-write",
            Fault::ShortWrite => "short-write",
            Fault::SlowWrite => "slow-write",
            Fault::SyncError => "sync-error",
        };
        // The rename replaces the file in one step, because the proxy may read it at any time.
        let new = self.control.with_extension("new");
        fs::write(&new, word).unwrap();
        fs::rename(&new, &self.control).unwrap();
    }

    pub(crate) fn works(&self) {
        let _ = fs::remove_file(&self.control);
    }
}
