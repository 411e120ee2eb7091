//! The service `rolltap serve`: a job whose groups are submitted while it runs.
//!
//! A submission is durable before it is acknowledged ([`log`]). The names of its trials derive from the submission, so a
//! restart finds the directory of each attempt that began, and begins no attempt twice ([`recovery`]). [`table`] has the
//! progress of each submission; [`planner`] finds its tasks; [`groups`] and [`pacing`] decide when groups begin and close; [`run`] is the loop that runs the trials and answers
//! requests.

mod groups;
mod log;
mod pacing;
mod planner;
mod recovery;
mod requests;
mod run;
mod table;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;

use axum::Router;
use futures_util::future::BoxFuture;

pub use self::log::SubmissionLogError;
pub use self::pacing::Pace;
use self::run::Service;
use super::settle::settle;
use super::{JobError, JobSettings, Progress, ProxyChoice};
use crate::common::cancellation::Cancellation;
use crate::environment::EnvironmentKind;
use crate::job_dir::JobDir;

/// The default of a service's job name. It is constant, so that a restart finds the directory.
pub const DEFAULT_NAME: &str = "service";

/// The settings that a service has beyond those of a job.
#[derive(Debug)]
pub struct ServiceSettings {
    /// The address of the admin plane.
    pub admin: SocketAddr,
    /// The token that clients of the admin plane must send. It has all roles.
    pub admin_token: Option<String>,
    /// The file with further tokens, each with its roles.
    pub admin_tokens: Option<PathBuf>,
    /// Web pages for the admin plane.
    pub pages: Option<Router>,
    /// The largest number of samples that have not begun. Further submissions are answered 429.
    pub max_queued: NonZeroU64,
    /// The budget of staleness. `None` lets every group begin at once and close when it is complete.
    pub pace: Option<Pace>,
    /// Whether groups whose valid rewards are all equal are dropped.
    pub drop_uniform: bool,
}

/// Why a service did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The job behind the service did not start.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The file of submissions cannot be used.
    #[error(transparent)]
    Log(#[from] SubmissionLogError),
    /// The proxy of the service would be in another process.
    #[error("rolltap serve has its own proxy: give the vLLM servers as --upstream, without --proxy")]
    OtherProxy,
    /// Harbor must know all tasks when it starts.
    #[error(
        "rolltap serve runs trials in docker or local, not in {0}: use `rolltap run` for that environment"
    )]
    Environment(EnvironmentKind),
    /// The directory belongs to a job with its own tasks.
    #[error(
        "{} is the directory of a job of `rolltap run`: choose another --job-name or --jobs-dir for the service",
        .0.display()
    )]
    NoService(PathBuf),
    /// A problem affects all trials.
    #[error(
        "no further trial can begin: {0}; correct this and start the service again, which continues its queue"
    )]
    Halted(String),
}

/// The end of a service that was told to stop.
#[derive(Debug)]
pub struct ServiceReport {
    /// The directory of the service.
    pub dir: JobDir,
    /// Problems of the service as a whole.
    pub problems: Vec<String>,
    /// The submissions that have not ended. The next start continues them.
    pub unfinished: usize,
}

/// Runs a service until `cancellation` stops it, or until a problem affects all trials. `started` gets the addresses
/// of its planes once it takes submissions.
///
/// # Errors
/// Fails before the first submission is taken, and if no further trial can begin.
///
/// The returned future is boxed for the reason given at [`super::run_job`].
pub fn serve(
    settings: JobSettings,
    service: ServiceSettings,
    progress: Progress,
    cancellation: Cancellation,
    started: impl FnOnce(&ServiceAddresses) + Send + 'static,
) -> BoxFuture<'static, Result<ServiceReport, ServiceError>> {
    Box::pin(start(settings, service, progress, cancellation, started))
}

/// Where a service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAddresses {
    /// The directory of the service.
    pub dir: PathBuf,
    /// The address of the admin plane.
    pub admin: SocketAddr,
    /// The submissions of an earlier run that continue.
    pub continued: usize,
}

async fn start(
    mut settings: JobSettings,
    service: ServiceSettings,
    progress: Progress,
    cancellation: Cancellation,
    started: impl FnOnce(&ServiceAddresses),
) -> Result<ServiceReport, ServiceError> {
    if matches!(settings.proxy, ProxyChoice::External { .. }) {
        return Err(ServiceError::OtherProxy);
    }
    if settings.environment == EnvironmentKind::Harbor {
        return Err(ServiceError::Environment(settings.environment));
    }
    settle(&mut settings, &progress, &cancellation).await?;
    let job_name = settings.job_name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let claim = JobDir::claim(&settings.jobs_dir, &job_name).map_err(JobError::from)?;
    let running = Box::pin(Service::start(settings, service, &claim.dir, &progress, cancellation)).await;
    let running = match running {
        Ok(running) => running,
        Err(error) => {
            claim.abandon();
            return Err(error);
        }
    };
    started(&running.addresses());
    running.run().await
}
