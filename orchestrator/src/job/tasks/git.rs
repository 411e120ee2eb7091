//! Tasks from git repositories. The `git` program fetches each version once into a cache that all jobs of a user share.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;

use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::common::cache;
use crate::common::plain::plain;
use crate::task::GitOrigin;

/// The task to fetch.
pub(super) struct Wanted<'a> {
    pub(super) url: &'a str,
    /// `None` for the newest commit.
    pub(super) commit: Option<&'a str>,
    /// The task's directory, relative to the root of the repository.
    pub(super) path: &'a Path,
    /// `None` for the user's own cache.
    pub(super) cache: Option<&'a Path>,
    /// Whether to fetch the task even if it is in the cache.
    pub(super) anew: bool,
}

/// Why a task cannot be fetched from git.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The `git` program is not installed.
    #[error("task from {url}: the program git is not installed")]
    NoGit {
        /// The repository.
        url: String,
    },
    /// The `git` program ended with an error.
    #[error("task from {url}: git {action} failed: {said}")]
    Failed {
        /// The repository.
        url: String,
        /// The subcommand of git.
        action: String,
        /// The last lines of its error output.
        said: String,
    },
    /// The path leads out of the repository.
    #[error("task from {url}: path {} does not stay in the repository", path.display())]
    Path {
        /// The repository.
        url: String,
        /// The path as given.
        path: PathBuf,
    },
    /// The commit does not contain the task's directory.
    #[error(
        "task from {url}: version {commit} has no directory {}: the key `path`, or --path, names the directory in the \
         repository", path.display()
    )]
    NoSuchPath {
        /// The repository.
        url: String,
        /// The commit.
        commit: String,
        /// The path as given.
        path: PathBuf,
    },
    /// The cache cannot be written.
    #[error("cannot write the cache of tasks, {}", path.display())]
    Cache {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The user has no cache directory.
    #[error("no place for the cache of tasks: neither XDG_CACHE_HOME nor HOME is set")]
    NoCache,
}

/// Returns the task's directory on this host, and its origin with the full commit id.
pub(super) async fn fetch(wanted: Wanted<'_>) -> Result<(PathBuf, GitOrigin), GitError> {
    let url = wanted.url.to_owned();
    let path = within(wanted.path)
        .ok_or_else(|| GitError::Path { url: url.clone(), path: wanted.path.to_owned() })?;
    let kept_in = match wanted.cache {
        Some(dir) => dir.to_owned(),
        None => cache::of_user().ok_or(GitError::NoCache)?.join("tasks"),
    };
    let repository = Repository { url: &url };
    let asked = match wanted.commit {
        Some(commit) if is_whole_id(commit) => commit.to_owned(),
        Some(revision) => repository.resolved(revision).await?,
        None => repository.newest().await?,
    };
    if !wanted.anew
        && let Some(dir) = within_another(&kept_in, &url, &asked, &path)
    {
        return Ok((dir, GitOrigin { url, commit: asked, path }));
    }
    let place = kept_in.join(key(&url, &asked, &path));
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| GitError::Cache { path, source }
    };
    fs::create_dir_all(&place).map_err(at(&place))?;
    // Jobs that fetch the same task wait for each other.
    let _turn = cache::turn(place.join("lock"), || {}).await.map_err(at(&place))?;
    let (dir, version) = (place.join("task").join(name(&path)), place.join("version"));
    // The version is written last, so a task with a version file is complete. A branch or tag may move, so only a full
    // id is taken from the cache.
    let kept = if wanted.anew || !is_whole_id(&asked) { None } else { fs::read_to_string(&version).ok() };
    let commit = match kept {
        Some(commit) => commit,
        None => {
            let _ = fs::remove_file(&version);
            let _ = fs::remove_dir_all(place.join("task"));
            let commit = repository.download(&asked, &path, &place, &dir).await?;
            fs::write(&version, &commit).map_err(at(&version))?;
            commit
        }
    };
    Ok((dir, GitOrigin { url, commit, path }))
}

/// Returns the directory within a directory of the same version that the cache already has.
fn within_another(cache: &Path, url: &str, commit: &str, path: &Path) -> Option<PathBuf> {
    path.ancestors().skip(1).filter(|_| is_whole_id(commit)).find_map(|ancestor| {
        let place = cache.join(key(url, commit, ancestor));
        // The version is written last, so the files beside it are complete.
        let is_complete = place.join("version").is_file();
        let dir = place.join("task").join(name(ancestor)).join(path.strip_prefix(ancestor).ok()?);
        Some(dir).filter(|dir| is_complete && dir.is_dir())
    })
}

/// Normalizes a path without `.` and `..`. Returns `None` if the path is absolute or leads out of the repository.
pub(super) fn within(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir if clean.pop() => {}
            _ => return None,
        }
    }
    Some(clean)
}

/// Returns the name of the task's directory, or `task` for a task in the root of its repository.
fn name(path: &Path) -> PathBuf {
    path.file_name().map_or_else(|| PathBuf::from("task"), PathBuf::from)
}

fn key(url: &str, commit: &str, path: &Path) -> String {
    let digest = Sha256::new()
        .chain_update(url)
        .chain_update([0])
        .chain_update(commit)
        .chain_update([0])
        .chain_update(path.as_os_str().as_encoded_bytes())
        .finalize();
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether this is a full commit id (SHA-1 or SHA-256). Only a full id always names the same version.
fn is_whole_id(commit: &str) -> bool {
    matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
}

struct Repository<'a> {
    url: &'a str,
}

impl Repository<'_> {
    async fn newest(&self) -> Result<String, GitError> {
        let commit = self.commit_of(&["HEAD"]).await?;
        commit.ok_or_else(|| self.failed("ls-remote", "the repository has no HEAD; give git_commit_id"))
    }

    /// Returns the commit of a branch or tag. An abbreviated id is returned as it is, because a server does not expand
    /// it.
    async fn resolved(&self, revision: &str) -> Result<String, GitError> {
        // `git checkout` would take it for an option.
        if revision.starts_with('-') {
            return Err(self.failed("fetch", "a revision does not begin with a dash"));
        }
        // An annotated tag has its commit under its name with `^{}`.
        let [peeled, tag, branch] = [
            format!("refs/tags/{revision}^{{}}"),
            format!("refs/tags/{revision}"),
            format!("refs/heads/{revision}"),
        ];
        let commit = self.commit_of(&[revision, &peeled, &tag, &branch]).await?;
        Ok(commit.unwrap_or_else(|| revision.to_owned()))
    }

    /// Returns the commit of the first of these references that the repository has.
    async fn commit_of(&self, references: &[&str]) -> Result<Option<String>, GitError> {
        let listed = self.git(None, "ls-remote", &[&["--", self.url][..], references].concat()).await?;
        let named = |name: &&str| {
            let mut lines = listed.lines().filter_map(|line| line.split_once('\t'));
            lines.find(|(_, listed)| listed == name).map(|(commit, _)| commit.to_owned())
        };
        Ok(references.iter().find_map(named).filter(|commit| is_whole_id(commit)))
    }

    fn failed(&self, action: &str, said: &str) -> GitError {
        GitError::Failed { url: self.url.to_owned(), action: action.to_owned(), said: said.to_owned() }
    }

    /// Downloads a version's task to `dir`. Returns the full commit id.
    async fn download(&self, asked: &str, path: &Path, place: &Path, dir: &Path) -> Result<String, GitError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| GitError::Cache { path, source }
        };
        let work = tempfile::tempdir_in(place).map_err(at(place))?;
        let clone = Some(work.path());
        // Without a template, hooks of this host do not run in the clone.
        self.git(clone, "init", &["--quiet", "--template="]).await?;
        let one = self.git(clone, "fetch", &["--quiet", "--depth=1", "--", self.url, asked]).await;
        if one.is_err() {
            // Some servers do not serve single commits, and abbreviated ids are never served. Fetch all branches and
            // tags then.
            let all = ["--quiet", "--tags", "--", self.url, "+refs/heads/*:refs/remotes/origin/*"];
            self.git(clone, "fetch", &all).await?;
        }
        let version = if one.is_ok() { "FETCH_HEAD" } else { asked };
        self.git(clone, "checkout", &["--quiet", "--detach", version]).await?;
        let commit = self.git(clone, "rev-parse", &["HEAD"]).await?.trim().to_owned();
        let (from, to) = (work.path().join(path), dir.parent().unwrap_or(place));
        if !from.is_dir() {
            let path = path.to_owned();
            return Err(GitError::NoSuchPath { url: self.url.to_owned(), commit, path });
        }
        // The whole repository is the task, without its history.
        if path.as_os_str().is_empty() {
            fs::remove_dir_all(work.path().join(".git")).map_err(at(place))?;
        }
        fs::create_dir_all(to).map_err(at(to))?;
        fs::rename(from, dir).map_err(at(dir))?;
        Ok(commit)
    }

    async fn git(&self, dir: Option<&Path>, action: &str, args: &[&str]) -> Result<String, GitError> {
        let mut command = Command::new("git");
        command.arg(action).args(args).stdin(Stdio::null()).kill_on_drop(true);
        // A password prompt would wait forever.
        command.env("GIT_TERMINAL_PROMPT", "0").env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        let failed =
            |said: String| GitError::Failed { url: self.url.to_owned(), action: action.to_owned(), said };
        let output = command.output().await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => GitError::NoGit { url: self.url.to_owned() },
            _ => failed(error.to_string()),
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = plain(&String::from_utf8_lossy(&output.stderr));
        let said: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        Err(failed(said.iter().rev().take(3).rev().copied().collect::<Vec<_>>().join("; ")))
    }
}

#[cfg(test)]
mod tests;
