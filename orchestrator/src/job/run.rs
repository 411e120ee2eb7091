//! Runs a job: checks it, starts its parts ([`start`]), runs a limited number of trials at once ([`trials`]), and cleans
//! up.

mod start;
mod trials;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::{Timestamp, Zoned};
use rolltap_proxy::traces::Exporting;
use tokio::time::Instant;

use super::attempts::Attempts;
use super::check::check;
use super::events::JobEvent;
use super::prepare::Prepared;
use super::progress::{Following, resumed, to_be_done};
use super::proxy::{JobProxy, check_captures, choose_models};
use super::queue::Queue;
use super::ready::make_ready;
use super::task_versions::TaskVersions;
use super::unusable::set_apart;
use super::{JobError, JobReport, JobSettings, Progress, SkippedTasks, rollouts};
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
    leave_out_unusable(&mut settings)?;
    check(&settings)?;
    make_ready(&mut settings)?;
    let stopped = || JobError::Stopped;
    let finding = progress.activity("asking the upstreams", "for their models");
    settings.agents = cancellation.unless_stopped(choose_models(&settings)).await.ok_or_else(stopped)??;
    drop(finding);
    for agent in &mut settings.agents {
        let _installing = progress.activity("installing agent", agent.spec.name());
        let installed = cancellation.unless_stopped(Box::pin(agent.spec.install())).await;
        installed.ok_or_else(|| JobError::Cancelled(agent.spec.name().to_owned()))??;
    }
    if settings.preflight {
        let _checking = progress.activity("checking", "that a call to the model is captured");
        let checked = cancellation.unless_stopped(Box::pin(check_captures(&settings))).await;
        checked.ok_or_else(stopped)??;
    }
    // Models and agents are settled first, because errors up to here leave no directory to remove.
    let job_name = settings.job_name.clone().unwrap_or_else(|| default_job_name(&Zoned::now()));
    let tasks = std::mem::take(&mut settings.tasks);
    let claim = JobDir::claim(&settings.jobs_dir, &job_name)?;
    let prepared = Prepared::look(&settings, tasks, &job_name, &claim.dir);
    let started = match cancellation.unless_stopped(Box::pin(prepared)).await.ok_or_else(stopped).flatten() {
        Ok(prepared) => Job::start(settings, claim.dir.clone(), prepared, progress, cancellation).await,
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

fn leave_out_unusable(settings: &mut JobSettings) -> Result<(), JobError> {
    let Some(unusable) = set_apart(settings) else { return Ok(()) };
    if unusable.stop_the_job(settings.skip_invalid) {
        return Err(unusable.into());
    }
    tracing::warn!("{}", SkippedTasks(&unusable));
    Ok(())
}

struct Job {
    context: Arc<TrialContext>,
    records: Records,
    proxy: JobProxy,
    progress: Progress,
    /// Reads the tokens of running trials for the progress.
    following: Option<Following>,
    /// The number of trials that run at once.
    at_once: usize,
    /// When this run of the job began.
    began: Instant,
    attempts: Attempts,
    queue: Queue,
    /// The number of consecutive trials without a trainable call.
    empty_in_a_row: u32,
    /// The number of such trials after which the job stops. 0 disables this limit.
    max_empty: u32,
    /// Why no further trial may begin, if a problem affects all trials.
    halted: Option<String>,
    /// Whether an earlier run of the job left its state.
    is_resumed: bool,
    /// Sends the spans of trials. `None` if traces are off.
    exporting: Option<Exporting>,
    task_versions: TaskVersions,
}

impl Job {
    /// Returns whether no further trial may begin.
    fn is_ending(&self) -> bool {
        self.halted.is_some() || self.context.cancellation.stop.is_cancelled()
    }

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
        let mut problems: Vec<_> = self.halted.iter().map(|why| format!("{why}; {remedy}")).collect();
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
        let Self { context, proxy, mut progress, attempts, exporting, began, .. } = self;
        let removing = progress.activity("removing", "the environments of the job");
        problems.extend(proxy.stop().await);
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        // No trial runs any more, so this is the only owner of the context.
        let (dir, planned) = (context.dir.clone(), attempts.planned());
        if let Some(TrialContext { place, log, .. }) = Arc::into_inner(context) {
            let unclean = place.close().await.err();
            problems.extend(unclean.map(|error| format!("environments not removed: {}", chain(&error))));
            problems.iter().for_each(|problem| log.line(problem));
        }
        drop(removing);
        progress.end();
        let (trials, took) = (attempts.into_done(), began.elapsed());
        let report = JobReport { dir, trials, planned, took, rollouts, problems };
        progress.events.job_ended(&report);
        report
    }
}
