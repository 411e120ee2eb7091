//! The local environment: a temporary directory, and processes of this host. It is no sandbox. It is for experiments,
//! and for hosts without Docker.
//!
//! Harbor's directories (the workdir, such as `/app`; `/tests`, `/solution`, `/logs`) are directories below the
//! temporary one. Uploaded text files and the instruction have their paths changed accordingly
//! ([`super::transfer::path_map`]), so that simple tasks work unchanged.

mod dockerfile;
mod exec;
mod files;
mod forks;
mod plan;
mod processes;
mod terminal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use uuid::Uuid;

pub(super) use plan::{LocalHost, Plan};

use super::transfer::archive::{self, Archive};
use super::transfer::fetch::{Exclusions, Fetched, unpack_path};
use super::transfer::path_map::PathMap;
use super::transfer::unpack::{Destinations, Downloaded, unpack};
use super::{EnvironmentError, LogDirs, Paths, error};
use crate::task::Task;

/// The default `PATH`, if the host has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A temporary directory and the processes in it. Dropping it also kills and removes, but cannot report errors.
#[derive(Debug)]
pub struct LocalEnvironment {
    /// The temporary directory. `None` once stopped.
    root: Option<TempDir>,
    root_path: PathBuf,
    paths: Paths,
    map: PathMap,
    env: BTreeMap<String, String>,
    mark: String,
    shell: &'static str,
    warned_of_user: AtomicBool,
}

impl LocalEnvironment {
    pub(super) fn start(plan: &Plan, task: &Task) -> Result<Self, EnvironmentError> {
        let temporary = std::env::temp_dir();
        let made = tempfile::Builder::new().prefix("rolltap-").tempdir_in(&temporary);
        let root = made.map_err(EnvironmentError::io("create a directory in", &temporary))?;
        // The temporary directory may be behind a link, and `place` compares paths by their prefix.
        let root_path = root.path().canonicalize().map_err(EnvironmentError::io("find", root.path()))?;
        let root_name = root_path.to_string_lossy().into_owned();
        let map = plan.path_map(&root_name);
        let paths = Paths::below(&root_name, &plan.workdir);
        let (home, scratch) = (format!("{root_name}/home"), format!("{root_name}/tmp"));
        for dir in
            [&paths.workdir, &paths.agent_logs, &paths.verifier_logs, &paths.artifacts, &home, &scratch]
        {
            std::fs::create_dir_all(dir).map_err(EnvironmentError::io("create", dir))?;
        }
        plan.put_in_place(&root_path)?;
        let mark = Uuid::now_v7().to_string();
        let mut env = host_variables();
        // Programs write to these directories, so they are inside the environment.
        env.extend([("HOME".to_owned(), home), ("TMPDIR".to_owned(), scratch)]);
        env.extend(plan.env.iter().map(|(name, value)| (name.clone(), map.apply(value))));
        env.insert(processes::MARK.to_owned(), mark.clone());
        let shell = if on_path("bash") { "bash" } else { "sh" };
        tracing::debug!(task = task.name, root = root_name, "local environment started");
        let warned_of_user = AtomicBool::new(false);
        Ok(Self { root: Some(root), root_path, paths, map, env, mark, shell, warned_of_user })
    }

    pub(super) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(super) fn map_text(&self, text: &str) -> String {
        self.map.apply(text)
    }

    fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    fn shell(&self) -> &'static str {
        self.shell
    }

    /// Maps an absolute path to its path on this host. The path is either Harbor's or one below the temporary
    /// directory.
    fn place(&self, inside: &str) -> Result<PathBuf, EnvironmentError> {
        let ours = Path::new(inside).starts_with(&self.root_path);
        let path = PathBuf::from(if ours { inside.to_owned() } else { self.map.apply(inside) });
        let below =
            path.starts_with(&self.root_path) && !path.components().any(|part| part.as_os_str() == "..");
        if below { Ok(path) } else { Err(EnvironmentError::NoSuchPath(inside.to_owned())) }
    }

    fn warn_of_user(&self, user: &str) {
        if !self.warned_of_user.swap(true, Ordering::Relaxed) {
            tracing::warn!("the local environment has one user, this host's; not running as {user}");
        }
    }

    pub(super) async fn upload(&self, host_dir: &Path, inside: &str) -> Result<(), EnvironmentError> {
        let (from, to, map) = (host_dir.to_owned(), self.place(inside)?, self.map.clone());
        error::blocking(move || files::copy_tree(&from, &to, &map)).await
    }

    pub(super) async fn download(
        &self,
        inside: &str,
        host_dir: &Path,
    ) -> Result<Downloaded, EnvironmentError> {
        let (inside, from, to) = (inside.to_owned(), self.place(inside)?, host_dir.to_owned());
        error::blocking(move || copy_out(&inside, &from, &Destinations::one(&to))).await
    }

    pub(super) async fn fetch(
        &self,
        inside: &str,
        to: &Path,
        exclude: &[String],
    ) -> Result<Fetched, EnvironmentError> {
        let (inside, from, to) = (inside.to_owned(), self.place(inside)?, to.to_owned());
        let exclude = Exclusions::new(exclude);
        error::blocking(move || copy_path(&inside, &from, &to, &exclude)).await
    }

    pub(super) async fn download_logs(&self, to: &LogDirs) -> Result<Downloaded, EnvironmentError> {
        let inside = self.paths().logs.clone();
        let (from, to) = (PathBuf::from(&inside), to.clone());
        error::blocking(move || copy_out(&inside, &from, &Destinations::of_logs(&to))).await
    }

    pub(super) async fn stop(mut self) -> Result<(), EnvironmentError> {
        // The processes are killed first, since they could write new files during the removal.
        let killed = processes::kill_marked(processes::MARK, &self.mark).await;
        let removed = self.root.take().map_or(Ok(()), TempDir::close);
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(EnvironmentError::io("remove", &self.root_path)(error))
            }
            _ if !killed => Err(EnvironmentError::Leftovers(vec![format!(
                "processes that worked in {}",
                self.root_path.display()
            )])),
            _ => Ok(()),
        }
    }
}

fn copy_path(
    inside: &str,
    from: &Path,
    to: &Path,
    exclude: &Exclusions,
) -> Result<Fetched, EnvironmentError> {
    let missing = |_| EnvironmentError::NoSuchPath(inside.to_owned());
    let mut archive = Archive::new()?;
    if from.symlink_metadata().map_err(missing)?.is_dir() {
        archive.directory(Path::new("contents"), 0o755)?;
        archive.contents(&archive::walk(from)?, Path::new("contents"))?;
    } else {
        archive.contents(&[archive::entry(from)?], Path::new(""))?;
    }
    unpack_path(archive.finish()?, inside, to, exclude)
}

/// Copies through an archive, so that one set of rules and limits holds for all downloads.
fn copy_out(inside: &str, from: &Path, to: &Destinations<'_>) -> Result<Downloaded, EnvironmentError> {
    // A link to a directory of the host must not be followed, so its own metadata counts.
    if !from.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(EnvironmentError::NoSuchPath(inside.to_owned()));
    }
    unpack(archive::pack(&archive::walk(from)?, Path::new("contents"))?, inside, to)
}

impl Drop for LocalEnvironment {
    fn drop(&mut self) {
        if self.root.is_some() {
            processes::kill_marked_now(processes::MARK, &self.mark);
        }
    }
}

/// Returns the few variables that programs expect. Other variables of the host may hold secrets.
fn host_variables() -> BTreeMap<String, String> {
    let of_host = |name: &str, default: &str| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        (name.to_owned(), value.unwrap_or_else(|| default.to_owned()))
    };
    let user = of_host("USER", "root").1;
    BTreeMap::from([
        of_host("PATH", DEFAULT_PATH),
        of_host("LANG", "C.UTF-8"),
        ("LOGNAME".to_owned(), user.clone()),
        ("USER".to_owned(), user),
    ])
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
