//! Why a later verification did not start.

use std::path::PathBuf;

use rolltap_rollout::ids::RewardVersion;

use crate::common::shell::word;
use crate::job::config::{ConfigError, SettingsError};
use crate::job::tasks::TasksError;
use crate::job::unusable::write_problems;
use crate::job::{JobError, ResumeError, UnusableTask};
use crate::job_dir::JobDirError;
use crate::task::TaskError;

/// Why a later verification did not start. Later problems are in the report.
#[derive(Debug, thiserror::Error)]
pub enum RegradeError {
    /// The directory is not that of a job.
    #[error("{} is no job directory: expected its config.json, as `rolltap run` writes it", .0.display())]
    NotAJob(PathBuf),
    /// The configuration of the job cannot be read.
    #[error("cannot read the configuration of the job")]
    Config(#[from] ConfigError),
    /// The configuration of the job cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The last run of the job did not end.
    #[error(
        "the job in {} did not end, so its rollouts are not complete: `rolltap resume {}` completes it first",
        .0.display(), word(&.0.to_string_lossy())
    )]
    Unfinished(PathBuf),
    /// The job ran in Harbor.
    #[error(
        "the trials of the job ran in Harbor, which rolltap does not verify again: choose where the tests run, \
         -e docker, or use `harbor job regrade`"
    )]
    Harbors,
    /// The tasks cannot be loaded.
    #[error("the tasks cannot be loaded (-p chooses a task directory in the place of that of the job)")]
    Tasks(#[from] TasksError),
    /// Tasks cannot be used.
    #[error("{}", unusable(.0))]
    Unusable(Vec<UnusableTask>),
    /// A value that the job puts in place of one of its tasks is invalid.
    #[error(transparent)]
    Overrides(#[from] TaskError),
    /// No trial is of a chosen task.
    #[error("no completed trial is of a task that matches {}; there are: {}", .patterns.join(", "), .names.join(", "))]
    NoMatch {
        /// The patterns.
        patterns: Vec<String>,
        /// The names of the job's tasks.
        names: Vec<String>,
    },
    /// The job has no completed trial.
    #[error("the job in {} has no completed trial", .0.display())]
    NoTrials(PathBuf),
    /// The version was made with other settings.
    #[error(
        "version {version} was made with {key} = {before}, and this command has {now}: a version has one verifier, so \
         choose another --name, or restore the value to complete the version"
    )]
    Differs {
        /// The version.
        version: RewardVersion,
        /// The first difference.
        key: String,
        /// Its recorded value.
        before: String,
        /// Its current value.
        now: String,
    },
    /// The job directory cannot be used.
    #[error(transparent)]
    Dir(#[from] JobDirError),
    /// A file of the job directory cannot be read.
    #[error(transparent)]
    Read(#[from] ResumeError),
    /// The files with the rollouts of the job are missing.
    #[error(
        "{} has neither rollouts.jsonl nor rollouts.parquet: `rolltap resume {}` writes them",
        .0.display(), word(&.0.to_string_lossy())
    )]
    NoRows(PathBuf),
    /// The captures of the job are not in its directory, and its proxy is unknown.
    #[error("{} has no captures (data/), and the job names no proxy: give --proxy", .0.display())]
    NoCaptures(PathBuf),
    /// The environments or the proxy cannot be started.
    #[error(transparent)]
    Job(Box<JobError>),
}

impl From<JobError> for RegradeError {
    fn from(error: JobError) -> Self {
        Self::Job(Box::new(error))
    }
}

fn unusable(tasks: &[UnusableTask]) -> String {
    let mut text =
        "tasks cannot be used (-p chooses a task directory in the place of that of the job):".to_owned();
    // Writing to a text cannot fail.
    let _ = write_problems(&mut text, tasks);
    text
}
