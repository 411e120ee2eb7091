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
    /// One that may not be there.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Creates it and the folders in it.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let dir = Self { path };
        for folder in [dir.agent(), dir.verifier(), dir.artifacts()] {
            fs::create_dir_all(folder)?;
        }
        Ok(dir)
    }

    /// Creates the directory of one step of the trial's task, laid out as a trial's own.
    pub(crate) fn create_step(&self, name: &str) -> io::Result<Self> {
        Self::create(self.path.join("steps").join(name))
    }

    /// The directory itself, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The trial's settings, as Harbor's `TrialConfig`.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// Which version of its task, as Harbor's `TrialLock`.
    pub fn version(&self) -> PathBuf {
        self.path.join("lock.json")
    }

    /// The trial's result, as Harbor's `TrialResult`.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// What happened, a line each.
    pub fn log(&self) -> PathBuf {
        self.path.join("trial.log")
    }

    /// Why the trial failed; absent if it did not.
    pub fn exception(&self) -> PathBuf {
        self.path.join("exception.txt")
    }

    /// The agent's logs: its output or transcript, and what it wrote to `/logs/agent`.
    pub fn agent(&self) -> PathBuf {
        self.path.join("agent")
    }

    /// The verifier's output and reward files.
    pub fn verifier(&self) -> PathBuf {
        self.path.join("verifier")
    }

    /// What was collected from the environment.
    pub fn artifacts(&self) -> PathBuf {
        self.path.join("artifacts")
    }

    /// Where what lies in the environment's log directories goes, by Harbor's layout.
    pub fn logs(&self) -> LogDirs {
        LogDirs {
            agent: self.agent(),
            verifier: self.verifier(),
            artifacts: self.artifacts().join("logs/artifacts"),
        }
    }
}
