//! The directory of one trial, or of one step of its task.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::environment::LogDirs;

/// The directory of one trial.
#[derive(Clone, Debug)]
pub struct TrialDir {
    path: PathBuf,
}

impl TrialDir {
    /// Makes a handle of a directory that may not exist.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Creates the directory and its folders.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let dir = Self { path };
        for folder in [dir.agent(), dir.verifier(), dir.artifacts()] {
            fs::create_dir_all(folder)?;
        }
        Ok(dir)
    }

    /// Returns the directory of one step of the trial's task, which may not exist.
    pub(crate) fn step(&self, name: &str) -> Self {
        Self { path: self.path.join("steps").join(name) }
    }

    /// Creates the directory of one step of the trial's task, in the layout of a trial.
    pub(crate) fn create_step(&self, name: &str) -> io::Result<Self> {
        Self::create(self.step(name).path)
    }

    /// Returns the absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the trial's settings, Harbor's `TrialConfig`.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// Returns the path of the version of the trial's task, Harbor's `TrialLock`.
    pub fn version(&self) -> PathBuf {
        self.path.join("lock.json")
    }

    /// Returns the path of the trial's result, Harbor's `TrialResult`.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// Returns the path of the trial's log, with one line per event.
    pub fn log(&self) -> PathBuf {
        self.path.join("trial.log")
    }

    /// Returns the path of the trial's failure. The file is absent if the trial did not fail.
    pub fn exception(&self) -> PathBuf {
        self.path.join("exception.txt")
    }

    /// Returns the folder of the agent's logs: its output or transcript, and its files from `/logs/agent`.
    pub fn agent(&self) -> PathBuf {
        self.path.join("agent")
    }

    /// Returns the folder of the verifier's output and reward files.
    pub fn verifier(&self) -> PathBuf {
        self.path.join("verifier")
    }

    /// Returns the folder of the artifacts collected from the environment.
    pub fn artifacts(&self) -> PathBuf {
        self.path.join("artifacts")
    }

    /// Returns the destinations of the environment's log directories, in Harbor's layout.
    pub fn logs(&self) -> LogDirs {
        LogDirs {
            agent: self.agent(),
            verifier: self.verifier(),
            artifacts: self.artifacts().join("logs/artifacts"),
            exclude: Vec::new(),
        }
    }
}
