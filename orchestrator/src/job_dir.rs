//! A job's directory, in Harbor's layout: the paths of its files, and how they are written.
//!
//! ```text
//! JOBS_DIR/JOB/   config.json lock.json result.json job.log rollouts.jsonl rollouts.parquet data/ .running
//!                 submissions.jsonl, if the job is a service
//!     TRIAL/      config.json lock.json result.json trial.log exception.txt agent/ verifier/ artifacts/
//!         steps/STEP/     agent/ verifier/ artifacts/, where the task has steps
//!     regrades/VERSION/   config.json result.json regrade.log rollouts.jsonl rollouts.parquet
//!         TRIAL/  result.json trial.log exception.txt verifier/, and steps/STEP/verifier/
//! ```

mod claim;
mod log;
mod regrade_dir;
mod trial_dir;

use std::fs::{self, File};
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

use jiff::Zoned;
use rolltap_rollout::ids::{RewardVersion, TrialId};
use serde::Serialize;
use serde_json::Value;

pub(crate) use claim::Claim;
pub use claim::JobDirError;
pub(crate) use log::Log;
pub use regrade_dir::RegradeDir;
pub use trial_dir::TrialDir;

/// The folder of later verifications in a job directory.
const REGRADES: &str = "regrades";

/// The directory of one job. Only this type names its files.
#[derive(Clone, Debug)]
pub struct JobDir {
    path: PathBuf,
}

/// Returns the default name of a job: the local time in Harbor's format.
pub fn default_job_name(now: &Zoned) -> String {
    now.strftime("%Y-%m-%d__%H-%M-%S").to_string()
}

impl JobDir {
    /// Makes a handle of an existing directory.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns the absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the job's settings, Harbor's `JobConfig`.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// Returns the path of the versions of the job's tasks, Harbor's `JobLock`.
    pub fn versions(&self) -> PathBuf {
        self.path.join("lock.json")
    }

    /// Returns the path of the job's current result, Harbor's `JobResult`.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// Returns the path of the job's log, with one line per event.
    pub fn log(&self) -> PathBuf {
        self.path.join("job.log")
    }

    /// Returns the path of the capture store of an embedded proxy.
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Returns the path of the compose file that Harbor merges into its own, if Harbor runs the trials.
    pub(crate) fn compose_overlay(&self) -> PathBuf {
        self.path.join("harbor-compose.json")
    }

    /// Returns the path of the rollouts as JSON Lines.
    pub fn rollouts_jsonl(&self) -> PathBuf {
        self.path.join("rollouts.jsonl")
    }

    /// Returns the path of the rollouts as a Parquet file.
    pub fn rollouts_parquet(&self) -> PathBuf {
        self.path.join("rollouts.parquet")
    }

    /// Returns the path of the report of `rolltap check --recompute-report`, which may not exist.
    pub fn recompute(&self) -> PathBuf {
        self.path.join("recompute.jsonl")
    }

    /// Returns the path of the submissions of a service.
    pub(crate) fn submissions(&self) -> PathBuf {
        self.path.join("submissions.jsonl")
    }

    /// Whether the directory is that of a service. A directory whose configuration cannot be read is none.
    pub(crate) fn is_of_a_service(&self) -> bool {
        let config = fs::read(self.config()).ok().and_then(|text| serde_json::from_slice(&text).ok());
        config.is_some_and(|config| is_of_a_service(&config))
    }

    /// Returns the name of the job.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the directory of a trial, which may not exist.
    pub(crate) fn trial(&self, name: &TrialId) -> TrialDir {
        TrialDir::at(self.path.join(name.as_str()))
    }

    /// Returns the trials whose directories have a `config.json`, sorted by name.
    pub(crate) fn trials(&self) -> io::Result<Vec<TrialId>> {
        let entries = fs::read_dir(&self.path)?;
        let names =
            entries.map(|entry| Ok(entry?.file_name().to_str().and_then(|name| TrialId::new(name).ok())));
        let mut trials: Vec<_> = names.filter_map(io::Result::transpose).collect::<io::Result<_>>()?;
        // A folder without `config.json` belongs to a trial that never began.
        trials.retain(|trial| self.trial(trial).config().is_file());
        trials.sort();
        Ok(trials)
    }

    /// Returns the directory of a later verification, which may not exist.
    pub fn regrade(&self, version: &RewardVersion) -> RegradeDir {
        RegradeDir::at(self.path.join(REGRADES).join(version.as_str()))
    }

    /// Returns the versions of the later verifications, sorted.
    pub(crate) fn regrades(&self) -> io::Result<Vec<RewardVersion>> {
        let entries = match fs::read_dir(self.path.join(REGRADES)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.map(|entry| Ok(entry?.file_name().to_str().map(str::to_owned)));
        let names = names.collect::<io::Result<Vec<_>>>()?.into_iter().flatten();
        let mut versions: Vec<_> = names.filter_map(|name| RewardVersion::new(name).ok()).collect();
        versions.retain(|version| self.regrade(version).config().is_file());
        versions.sort();
        Ok(versions)
    }

    /// Creates the directory of a trial and its folders.
    pub(crate) fn create_trial(&self, name: &str) -> io::Result<TrialDir> {
        TrialDir::create(self.path.join(name))
    }
}

/// Whether this content of a `config.json` is that of a service.
pub(crate) fn is_of_a_service(config: &Value) -> bool {
    config.pointer("/rolltap/service") == Some(&Value::Bool(true))
}

/// Writes a JSON file atomically, so that a reader never sees a partial file.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let draft = path.with_extension("json.tmp");
    let written = write_pretty(&draft, value).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // On a full disk a partial draft would occupy space.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Writes JSON as a stream, so that the record of a large job is not held in memory.
fn write_pretty(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    serde_json::to_writer_pretty(&mut file, value)?;
    file.write_all(b"\n")?;
    file.into_inner().map(drop).map_err(IntoInnerError::into_error)
}

/// Returns whether the error affects every write to the disk until a person intervenes.
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
