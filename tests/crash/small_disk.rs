//! A file system of a few megabytes that only one test sees.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A file system in memory, in a mount namespace that a process of its own holds. It is removed on drop.
pub(crate) struct SmallDisk {
    keeper: Child,
    /// The namespaces to enter in addition to the mount namespace, as flags of nsenter.
    namespaces: &'static [&'static str],
    /// The path of the disk within the namespace.
    pub(crate) within: PathBuf,
    /// The path of the same directory from outside.
    pub(crate) outside: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of `mib` MiB at `dir`. Returns `None` and prints the reason if the system does not allow the
    /// mount. On CI that is an error.
    pub(crate) fn mount(dir: &Path, mib: u32) -> Option<Self> {
        fs::create_dir_all(dir).unwrap();
        // An ordinary user needs a user namespace. Root works without one, if user namespaces are turned off.
        let disk = Self::try_mount(dir, mib, &["--user"]).or_else(|| Self::try_mount(dir, mib, &[]));
        if disk.is_none() {
            let why = "no file system can be mounted here: neither user namespaces nor root's right to mount";
            assert!(std::env::var("CI").is_err(), "{why}");
            println!("skipped: {why}");
        }
        disk
    }

    fn try_mount(dir: &Path, mib: u32, namespaces: &'static [&'static str]) -> Option<Self> {
        // The process ends with its standard input, so that a test that is killed leaves nothing behind.
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

    /// Returns the words to put before a command, so that it runs within the namespace.
    pub(crate) fn entry(&self) -> Vec<String> {
        let target = self.keeper.id().to_string();
        let own = ["nsenter", "--target", &target, "--mount", "--preserve-credentials"];
        own.iter().chain(self.namespaces).map(|&word| word.to_owned()).collect()
    }

    /// Takes all free space.
    pub(crate) fn fill(&self) {
        let mut ballast = OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
    }

    /// Frees the space again.
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
