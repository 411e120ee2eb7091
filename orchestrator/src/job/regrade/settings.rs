//! The settings of a later verification.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use rolltap_proxy::UpstreamTls;
use rolltap_rollout::ids::RewardVersion;

use crate::environment::EnvironmentKind;

/// The settings of a later verification of a job's trials.
#[derive(Clone, Debug)]
pub struct RegradeSettings {
    /// The directory of the job.
    pub job_dir: PathBuf,
    /// The version of the new rewards. `None` completes the last version if its run was interrupted, and begins another
    /// one otherwise.
    pub version: Option<RewardVersion>,
    /// Tasks, or directories of tasks, whose tests replace those of the job's tasks of the same name. Empty for the
    /// job's own tasks as they are now.
    pub paths: Vec<PathBuf>,
    /// Shell patterns of the names of tasks to verify. Empty for all.
    pub tasks: Vec<String>,
    /// Whether to verify only trials without a valid reward whose agent is not to blame.
    pub failed_only: bool,
    /// The number of trials at once. `None` for the job's own number.
    pub concurrency: Option<NonZeroUsize>,
    /// Where the tests run. `None` for the job's own environment.
    pub environment: Option<EnvironmentKind>,
    /// The proxy of the job, if it is not the embedded one. `None` for the recorded proxy, without a token.
    pub admin: Option<AdminAccess>,
    /// Whether to hide the progress.
    pub quiet: bool,
}

/// The access to a running proxy.
#[derive(Clone, Debug)]
pub struct AdminAccess {
    /// The URL of its admin plane. `None` for the URL that the job recorded.
    pub url: Option<String>,
    /// Its admin token.
    pub token: Option<String>,
    /// The files of TLS to an admin plane with `https`.
    pub tls: UpstreamTls,
}
