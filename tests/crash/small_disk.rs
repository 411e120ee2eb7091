//! A file system of a few megabytes that only one test sees.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// In memory, in a mount namespace that a process of its own keeps; gone when dropped.
pub(crate) struct SmallDisk {
    keeper: Child,
    /// As those see it who are within.
    pub(crate) within: PathBuf,
    /// The same directory, seen from outside.
    pub(crate) outside: PathBuf,
}

impl SmallDisk {
    /// Mounted at `dir`, of so many MiB. None, having said why, where the system does not allow it to the tester; on CI that
    /// is an error.
    pub(crate) fn mount(dir: &Path, mib: u32) -> Option<Self> {
        fs::create_dir_all(dir).unwrap();
        let script =
            format!("mount -t tmpfs -o size={mib}m tmpfs \"$0\" && echo mounted && exec sleep infinity");
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(dir);
        let mut keeper = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.trim() != "mounted" {
            let _ = keeper.wait();
            let why = "a file system cannot be mounted here: unshare --map-root-user --mount is not allowed";
            assert!(std::env::var("CI").is_err(), "{why}");
            println!("skipped: {why}");
            return None;
        }
        let outside = PathBuf::from(format!("/proc/{}/root{}", keeper.id(), dir.display()));
        Some(Self { keeper, within: dir.to_owned(), outside })
    }

    /// What to put before a command, so that it runs within.
    pub(crate) fn entry(&self) -> Vec<String> {
        let target = self.keeper.id().to_string();
        ["nsenter", "--target", &target, "--user", "--mount", "--preserve-credentials"]
            .map(str::to_owned)
            .to_vec()
    }

    /// Takes all space that is left.
    pub(crate) fn fill(&self) {
        let mut ballast = OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
    }

    /// Gives it back.
    pub(crate) fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.outside.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
