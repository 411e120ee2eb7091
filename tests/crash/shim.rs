//! A disk that fails when it is told to: a C library that stands before the proxy's own (`shim.c`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What goes wrong with the capture files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Every write is an I/O error.
    WriteError,
    /// Half of a write arrives, then there is no space.
    HalfWrite,
    /// A write takes seven bytes at most. Nothing is wrong with that.
    ShortWrite,
    /// A write takes 30 ms.
    SlowWrite,
    /// Writes work; making them durable is an I/O error.
    SyncError,
}

/// Faults of one proxy's disk.
pub(crate) struct Shim {
    library: PathBuf,
    control: PathBuf,
}

impl Shim {
    /// Compiled into `dir`.
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

    /// What a proxy is started with so that its disk can fail.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        vec![
            ("LD_PRELOAD".to_owned(), text(&self.library)),
            ("FAULT_CONTROL".to_owned(), text(&self.control)),
        ]
    }

    pub(crate) fn fails(&self, fault: Fault) {
        let word = match fault {
            Fault::WriteError => "write-error",
            Fault::HalfWrite => "half-write",
            Fault::ShortWrite => "short-write",
            Fault::SlowWrite => "slow-write",
            Fault::SyncError => "sync-error",
        };
        // In one step: the proxy reads the file while it is written.
        let new = self.control.with_extension("new");
        fs::write(&new, word).unwrap();
        fs::rename(&new, &self.control).unwrap();
    }

    pub(crate) fn works(&self) {
        let _ = fs::remove_file(&self.control);
    }
}
