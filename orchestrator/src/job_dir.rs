//! A job's directory, laid out as Harbor's: what lies where, and how it is written.
//!
//! ```text
//! JOBS_DIR/JOB/   config.json lock.json result.json job.log rollouts.jsonl rollouts.parquet data/ .running
//!     TRIAL/      config.json lock.json result.json trial.log exception.txt agent/ verifier/ artifacts/
//!         steps/STEP/     agent/ verifier/ artifacts/, where the task has steps
//! ```

mod claim;
mod log;
mod trial_dir;

use std::fs::{self, File};
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

use jiff::Zoned;
use rolltap_rollout::ids::TrialId;
use serde::Serialize;

pub use claim::JobDirError;
pub(crate) use log::Log;
pub use trial_dir::TrialDir;

/// The directory of one job. Its files are named here and nowhere else.
#[derive(Clone, Debug)]
pub struct JobDir {
    path: PathBuf,
}

/// The name of a job that was given none: the local time, as Harbor writes it.
pub fn default_job_name(now: &Zoned) -> String {
    now.strftime("%Y-%m-%d__%H-%M-%S").to_string()
}

impl JobDir {
    /// One that is there.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The directory itself, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The job's settings, as Harbor's `JobConfig`.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// Which versions of which tasks, as Harbor's `JobLock`.
    pub fn versions(&self) -> PathBuf {
        self.path.join("lock.json")
    }

    /// The job's result so far, as Harbor's `JobResult`.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// What happened, a line each.
    pub fn log(&self) -> PathBuf {
        self.path.join("job.log")
    }

    /// The capture store of an embedded proxy.
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// What Harbor lays over its compose files, where it runs the trials.
    pub(crate) fn compose_overlay(&self) -> PathBuf {
        self.path.join("harbor-compose.json")
    }

    /// The rollouts, a JSON line each.
    pub fn rollouts_jsonl(&self) -> PathBuf {
        self.path.join("rollouts.jsonl")
    }

    /// The rollouts as a Parquet file.
    pub fn rollouts_parquet(&self) -> PathBuf {
        self.path.join("rollouts.parquet")
    }

    /// The directory of a trial, which may not be there.
    pub(crate) fn trial(&self, name: &TrialId) -> TrialDir {
        TrialDir::at(self.path.join(name.as_str()))
    }

    /// The trials whose directories are there, in order of their names.
    pub(crate) fn trials(&self) -> io::Result<Vec<TrialId>> {
        let entries = fs::read_dir(&self.path)?;
        let names =
            entries.map(|entry| Ok(entry?.file_name().to_str().and_then(|name| TrialId::new(name).ok())));
        let mut trials: Vec<_> = names.filter_map(io::Result::transpose).collect::<io::Result<_>>()?;
        trials.retain(|trial| self.trial(trial).config().is_file());
        trials.sort();
        Ok(trials)
    }

    /// Creates the directory of a trial and the folders in it.
    pub(crate) fn create_trial(&self, name: &str) -> io::Result<TrialDir> {
        TrialDir::create(self.path.join(name))
    }
}

/// Writes a JSON file whole or not at all: a reader never sees half of it.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let draft = path.with_extension("json.tmp");
    let written = write_pretty(&draft, value).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // On a full disk also half a draft is in the way.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Piece by piece: that of a large job is not held in memory.
fn write_pretty(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    serde_json::to_writer_pretty(&mut file, value)?;
    file.write_all(b"\n")?;
    file.into_inner().map(drop).map_err(IntoInnerError::into_error)
}

/// Whether this befalls whatever else is written there, until somebody does something about it.
pub(crate) fn is_of_the_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_like_harbors() {
        let now: Zoned = "2026-11-21T03:42:00[UTC]".parse().unwrap();
        assert_eq!(default_job_name(&now), "2026-11-21__03-42-00");
    }

    #[test]
    fn json_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result.json");
        write_json(&path, &[1, 2]).unwrap();
        write_json(&path, &[3]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  3\n]\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }
}
