//! Why a job cannot be resumed.

use std::path::PathBuf;

use rolltap_rollout::ids::InvalidId;

use crate::common::shell::word;

/// Why a job cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The directory belongs to a job with other settings.
    #[error(
        "job directory {} exists, of a job with {key} = {before}, and this command has {now}, which would change its \
         results: leave the setting out to resume the job (`rolltap resume {}` takes all settings from it), or choose \
         another --job-name to start another job",
        dir.display(), word(&dir.to_string_lossy())
    )]
    Differs {
        /// The job directory.
        dir: PathBuf,
        /// The first setting that differs, as in `agents[0].name`.
        key: String,
        /// Its recorded value.
        before: String,
        /// Its current value.
        now: String,
    },
    /// The files of a task have changed since its trials finished.
    #[error(
        "task {task} is not what it was when the job in {} began: its files have changed, and the rewards of a group \
         must be comparable; restore them to resume the job. If only the tests changed, `rolltap regrade {}` runs them \
         again on the completed trials",
        dir.display(), word(&dir.to_string_lossy())
    )]
    TaskChanged {
        /// The job directory.
        dir: PathBuf,
        /// The task.
        task: String,
    },
    /// A file of the job directory cannot be read, or its content is not rolltap's.
    #[error("cannot resume the job in {}: {} {problem}", dir.display(), file.display())]
    Unreadable {
        /// The job directory.
        dir: PathBuf,
        /// The file.
        file: PathBuf,
        /// The reason.
        problem: String,
    },
    /// The directory belongs to a service, whose groups are submitted.
    #[error("{} is the directory of a service: `rolltap serve` continues it; choose another --job-name", .0.display())]
    Service(PathBuf),
    /// The name of a trial is not a valid id.
    #[error(transparent)]
    Name(#[from] InvalidId),
}
