//! Gives `rolltap --version` the commit that the program is built from, such as `0.1.0 (abcdef123 2026-11-24)`.
//!
//! The commit is that of the clone, or of `ROLLTAP_COMMIT` for a build without the clone's `.git`. Sources from an
//! archive have neither, and their program has the version alone. Uncommitted changes do not show, because cargo would
//! have to run this script for each build to notice them; `scripts/release` refuses them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable with the commit and its date, like `abcdef123 2026-11-24`.
const GIVEN: &str = "ROLLTAP_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={GIVEN}");
    let given = std::env::var(GIVEN).ok().filter(|commit| !commit.is_empty());
    // cargo runs this script in the root of the package.
    let commit = given.or_else(|| Checkout::of(Path::new("."))?.commit());
    let version = env!("CARGO_PKG_VERSION");
    match commit {
        Some(commit) => println!("cargo::rustc-env=VERSION_WITH_COMMIT={version} ({commit})"),
        None => println!("cargo::rustc-env=VERSION_WITH_COMMIT={version}"),
    }
}

/// A clone of rolltap's own repository, or one of its worktrees.
struct Checkout<'a> {
    root: &'a Path,
}

impl<'a> Checkout<'a> {
    /// Returns `None` if git is not installed, or if `root` is not the root of a clone. Unpacked sources may be inside a
    /// clone of another project, whose commit is not that of rolltap.
    fn of(root: &'a Path) -> Option<Self> {
        let checkout = Self { root };
        let top = PathBuf::from(checkout.git(&["rev-parse", "--show-toplevel"])?);
        (top.canonicalize().ok()? == root.canonicalize().ok()?).then_some(checkout)
    }

    /// Returns the commit and its date in UTC. cargo runs this script again after the next commit or checkout.
    fn commit(&self) -> Option<String> {
        for file in self.files_of_head() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        let commit = self.git(&["log", "-1", "--date=short-local", "--format=%H %cd"])?;
        let (hash, date) = commit.split_once(' ')?;
        Some(format!("{} {date}", hash.get(..9)?))
    }

    /// Returns the files that change with the commit of `HEAD`. A missing file would make each build run this script.
    fn files_of_head(&self) -> Vec<PathBuf> {
        let log = self.file("logs/HEAD");
        if log.is_some() {
            // git appends to this log at each commit and checkout, also in a worktree.
            return log.into_iter().collect();
        }
        // Without the log, `HEAD` names a branch, whose commit is in its own file or among the packed ones.
        let branch = self.git(&["rev-parse", "--symbolic-full-name", "HEAD"]);
        let names = ["HEAD", branch.as_deref().unwrap_or("HEAD"), "packed-refs"];
        names.iter().filter_map(|name| self.file(name)).collect()
    }

    /// Returns the path of an existing file of the repository.
    fn file(&self, name: &str) -> Option<PathBuf> {
        let path = self.root.join(self.git(&["rev-parse", "--git-path", name])?);
        path.exists().then_some(path)
    }

    fn git(&self, arguments: &[&str]) -> Option<String> {
        let output =
            Command::new("git").arg("-C").arg(self.root).args(arguments).env("TZ", "UTC").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
    }
}
