//! A file system of a few megabytes that only one test sees.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// In memory, in a mount namespace that a process of its own keeps; gone when dropped.
pub(crate) struct SmallDisk {
    keeper: Child,
    /// Beside that of mounts, as flags of nsenter.
    namespaces: &'static [&'static str],
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
        // As an ordinary user; as root where user namespaces are turned off.
        let disk = Self::try_mount(dir, mib, &["--user"]).or_else(|| Self::try_mount(dir, mib, &[]));
        if disk.is_none() {
            let why = "no file system can be mounted here: neither user namespaces nor root's right to mount";
            assert!(std::env::var("CI").is_err(), "{why}");
            println!("skipped: {why}");
        }
        disk
    }

    fn try_mount(dir: &Path, mib: u32, namespaces: &'static [&'static str]) -> Option<Self> {
        // It stays as long as its standard input does, so also a test that is killed leaves nothing behind.
        let script = format!("mount -t tmpfs -o size={mib}m tmpfs \"$0\" && echo mounted && exec cat");
        let mut command = Command::new("unshare");
        command
            .args(namespaces.iter().map(|_| "--map-root-user"))
            .args(["--mount", "sh", "-c", &script])
            .arg(dir);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.trim() != "mounted" {
            keeper.wait().unwrap();
            return None;
        }
        let outside = PathBuf::from(format!("/proc/{}/root{}", keeper.id(), dir.display()));
        Some(Self { keeper, namespaces, within: dir.to_owned(), outside })
    }

    /// What to put before a command, so that it runs within.
    pub(crate) fn entry(&self) -> Vec<String> {
        let target = self.keeper.id().to_string();
        let own = ["nsenter", "--target", &target, "--mount", "--preserve-credentials"];
        own.iter().chain(self.namespaces).map(|&word| word.to_owned()).collect()
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
