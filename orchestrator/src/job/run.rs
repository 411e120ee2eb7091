//! Runs a job: checks it, starts its parts ([`start`]), runs a limited number of trials at once ([`trials`]), and cleans
//! up.

mod start;
mod trials;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::{Timestamp, Zoned};
use tokio::time::Instant;

use super::attempts::Attempts;
use super::dispatcher::Dispatcher;
use super::events::JobEvent;
use super::parts::JobParts;
use super::prepare::Prepared;
use super::progress::{Following, resumed, to_be_done};
use super::settle::settle;
use super::task_versions::TaskVersions;
use super::{JobError, JobReport, JobSettings, Progress, rollouts};
use crate::common::cancellation::Cancellation;
use crate::failure::chain;
use crate::job::records::{JobProgress, Records};
use crate::job_dir::{JobDir, default_job_name, write_json};
use crate::trial::TrialContext;

/// Runs a job to its end, or until `cancellation` stops it. Nothing that it started keeps running. If the job directory
/// of an equal job exists, that job is resumed.
///
/// # Errors
/// Fails only before the first trial starts, and then leaves no new job directory behind. Later problems are in the
/// report.
///
/// The returned future is boxed so that this crate compiles the orchestrator once. The body of an `async fn` is
/// compiled by every crate that polls it, with that crate's settings.
pub fn run_job(
    settings: JobSettings,
    progress: Progress,
    cancellation: Cancellation,
) -> BoxFuture<'static, Result<JobReport, JobError>> {
    Box::pin(run(settings, progress, cancellation))
}

async fn run(
    mut settings: JobSettings,
    progress: Progress,
    cancellation: Cancellation,
) -> Result<JobReport, JobError> {
    settle(&mut settings, &progress, &cancellation).await?;
    // Models and agents are settled first, because errors up to here leave no directory to remove.
    let job_name = settings.job_name.clone().unwrap_or_else(|| default_job_name(&Zoned::now()));
    let tasks = std::mem::take(&mut settings.tasks);
    let claim = JobDir::claim(&settings.jobs_dir, &job_name)?;
    let prepared = Prepared::look(&settings, tasks, &job_name, &claim.dir, &cancellation.stop);
    let started =
        match cancellation.unless_stopped(Box::pin(prepared)).await.ok_or(JobError::Stopped).flatten() {
            Ok(prepared) => {
                Box::pin(Job::start(settings, claim.dir.clone(), prepared, progress, cancellation)).await
            }
            Err(error) => Err(error),
        };
    match started {
        Ok(job) => Ok(job.run().await),
        Err(error) => {
            claim.abandon();
            Err(error)
        }
    }
}

struct Job {
    context: Arc<TrialContext>,
    parts: JobParts,
    records: Records,
    progress: Progress,
    /// Reads the tokens of running trials for the progress.
    following: Option<Following>,
    /// The number of trials that run at once.
    at_once: usize,
    /// When this run of the job began.
    began: Instant,
    attempts: Attempts,
    dispatcher: Dispatcher,
    /// Whether an earlier run of the job left its state.
    is_resumed: bool,
    task_versions: TaskVersions,
}

impl Job {
    async fn run(mut self) -> JobReport {
        let (planned, before) = (self.attempts.planned(), self.attempts.done().len());
        self.context.log.line(to_be_done(planned, before));
        if self.is_resumed {
            self.progress.note(&resumed(&self.context.dir, planned, self.attempts.done()));
        }
        self.progress.start(planned, self.at_once, self.attempts.done());
        self.progress.events.write(JobEvent::JobStarted {
            job: self.records.job_name(),
            job_id: self.records.job_id(),
            dir: self.context.dir.path().display().to_string(),
            trials: planned,
            finished_before: before,
        });
        self.run_trials().await;
        self.following = None;
        let collecting = self.progress.activity("collecting", "the rollouts");
        let remedy = "no further trial was started; correct this and run the job again to resume it";
        let mut problems: Vec<_> =
            self.dispatcher.halted().iter().map(|why| format!("{why}; {remedy}")).collect();
        let rollouts = match rollouts::gather(&self.context, &self.attempts.all()).await {
            Ok((files, missing)) => {
                problems.extend(missing);
                Some(files)
            }
            Err(error) => {
                problems.push(chain(&error));
                None
            }
        };
        drop(collecting);
        problems.extend(self.task_versions.changed());
        problems.extend(self.write_result(0, Some(Timestamp::now())).err());
        self.shut_down(rollouts, problems).await
    }

    fn write_result(&self, running: usize, finished_at: Option<Timestamp>) -> Result<(), String> {
        let path = self.context.dir.result();
        let record = self.records.job_result(&JobProgress {
            started_at: self.context.started_at,
            finished_at,
            planned: self.attempts.planned(),
            running,
            retries: self.attempts.retries(),
            trials: self.attempts.done(),
        });
        write_json(&path, &record).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    async fn shut_down(
        self,
        rollouts: Option<rollouts::RolloutFiles>,
        mut problems: Vec<String>,
    ) -> JobReport {
        let Self { context, parts, mut progress, attempts, began, dispatcher, .. } = self;
        let (dir, planned) = (context.dir.clone(), attempts.planned());
        // The parts must be the only owner of the context.
        drop((dispatcher, context));
        let removing = progress.activity("removing", "the environments of the job");
        problems = parts.stop(problems).await;
        drop(removing);
        progress.end();
        let (trials, took) = (attempts.into_done(), began.elapsed());
        let report = JobReport { dir, trials, planned, took, rollouts, problems };
        progress.events.job_ended(&report);
        report
    }
}
