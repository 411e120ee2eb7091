//! The directory of one later verification of a job's trials.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rolltap_rollout::ids::TrialId;

use super::TrialDir;

/// The directory of one later verification of a job's trials.
#[derive(Clone, Debug)]
pub struct RegradeDir {
    path: PathBuf,
}

impl RegradeDir {
    /// Makes a handle of a directory that may not exist.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Creates the directory.
    pub(crate) fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.path)
    }

    /// Returns the absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the settings: the tasks with their digests, and the choice of trials.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// Returns the path of the result: both rewards of each trial, and their statistics.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// Returns the path of the log, with one line per event.
    pub fn log(&self) -> PathBuf {
        self.path.join("regrade.log")
    }

    /// Returns the path of the rollouts with the rewards of this version, as JSON Lines.
    pub fn rollouts_jsonl(&self) -> PathBuf {
        self.path.join("rollouts.jsonl")
    }

    /// Returns the path of the same rollouts as a Parquet file.
    pub fn rollouts_parquet(&self) -> PathBuf {
        self.path.join("rollouts.parquet")
    }

    /// Returns the directory of one trial in this version, which may not exist.
    pub(crate) fn trial(&self, name: &TrialId) -> TrialDir {
        TrialDir::at(self.path.join(name.as_str()))
    }

    /// Creates the directory of one trial in this version, without the results of a verification that was interrupted.
    pub(crate) fn create_trial(&self, name: &TrialId) -> io::Result<TrialDir> {
        let path = self.path.join(name.as_str());
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        TrialDir::create(path)
    }
}
