//! Runs a job: checks it, starts its parts, runs a limited number of trials at once, and cleans up.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::{Timestamp, Zoned};
use rolltap_proxy::traces::{Exporting, Tracer};
use tokio::time::Instant;

use super::attempts::Attempts;
use super::check::check;
use super::events::JobEvent;
use super::plan;
use super::prepare::Prepared;
use super::progress::{Following, resumed, to_be_done};
use super::proxy::{JobProxy, check_captures, choose_models};
use super::queue::{NextTrial, Queue};
use super::ready::make_ready;
use super::running::Running;
use super::task_versions::TaskVersions;
use super::unusable::set_apart;
use super::{JobError, JobReport, JobSettings, Progress, SkippedTasks, rollouts};
use crate::agent_reported::Returned;
use crate::common::cancellation::Cancellation;
use crate::environment::JobLabel;
use crate::failure::chain;
use crate::job::records::{JobProgress, Records};
use crate::job_dir::{JobDir, Log, default_job_name, write_json};
use crate::trial::{TrialContext, TrialHost, TrialOutcome, TrialPlan, spans};

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
    if !settings.skip_invalid || settings.tasks.is_empty() {
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
    async fn start(
        settings: JobSettings,
        dir: JobDir,
        prepared: Prepared,
        mut progress: Progress,
        cancellation: Cancellation,
    ) -> Result<Self, JobError> {
        let Prepared { left, records, versions, remaining, order, task_versions } = prepared;
        let write = |path| move |source| JobError::Write { path, source };
        // The configuration is written last. A directory without it counts as new.
        if left.is_none() {
            write_json(&dir.versions(), &versions).map_err(write(dir.versions()))?;
            write_json(&dir.config(), records.job_config()).map_err(write(dir.config()))?;
        }
        let log = Log::create(&dir.log()).map_err(write(dir.log()))?;
        let (tracer, exporting) = settings.traces.clone().map(Tracer::start).transpose()?.unzip();
        let label = JobLabel::new(records.job_name());
        let first: Vec<_> = remaining.plans.iter().map(|stretch| &stretch.first).collect();
        let place = TrialHost::connect(&settings, &first, &label, &dir, progress.activities()).await?;
        let traces = settings.traces.clone();
        let started = JobProxy::start(settings.proxy, place.bind_address(), dir.data(), traces).await;
        let (proxy, admin, published) = match started {
            Ok(started) => started,
            Err(error) => {
                close(place).await;
                return Err(error);
            }
        };
        let is_resumed = left.is_some();
        let (started_before, retries) = left.map_or((None, 0), |left| (left.started_at, left.retries));
        let context = TrialContext {
            started_at: started_before.unwrap_or_else(Timestamp::now),
            dir,
            log,
            place,
            environment: settings.environment,
            admin,
            published,
            history: settings.history,
            sampling: settings.sampling,
            retry: settings.retry,
            events: Arc::clone(&progress.events),
            tracer,
            records: records.trials().clone(),
            cancellation,
        };
        progress.name_agents(settings.agents.len() > 1);
        let following = progress.follow(&context.admin);
        let job_id = records.job_id();
        let mut older = remaining.older;
        // These trials ended while the proxy was unreachable, so they may still be open there.
        for outcome in older.iter_mut().filter(|outcome| !outcome.opened) {
            context.seal(outcome).await;
        }
        let mut job = Self {
            context: Arc::new(context),
            records,
            proxy,
            progress,
            following,
            at_once: settings.concurrency.get(),
            began: Instant::now(),
            attempts: Attempts::before(order, remaining.done, older, retries),
            queue: Queue::new(job_id, remaining.plans, settings.concurrency, settings.per_task),
            empty_in_a_row: 0,
            max_empty: settings.max_empty_trials,
            halted: None,
            is_resumed,
            exporting,
            task_versions,
        };
        job.put_rewards_left().await;
        for plan in &remaining.interrupted {
            let outcome = job.context.end_interrupted(plan).await;
            job.attempts.pass_over(outcome);
        }
        Ok(job)
    }

    /// Sets the rewards that the proxy lacks. A process may die between writing a result and setting its reward.
    async fn put_rewards_left(&mut self) {
        let is_told = |outcome: &TrialOutcome| {
            outcome.status.as_ref().is_some_and(|status| status.completed_at.is_some())
        };
        for outcome in self.attempts.done_mut().iter_mut().filter(|trial| trial.opened && !is_told(trial)) {
            self.context.put_reward(outcome).await;
        }
    }

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
        let goes_on = "no further trial was started; correct this and run the job again to resume it";
        let mut problems: Vec<_> = self.halted.iter().map(|why| format!("{why}; {goes_on}")).collect();
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

    async fn run_trials(&mut self) {
        let mut running = Running::default();
        loop {
            while let Some(turn) = self.next_to_start() {
                if let Some(before) = turn.before {
                    self.attempts.follow(*before);
                }
                self.progress.trial_started(&turn.plan);
                running.start(&self.context, turn.plan);
                // Starting many trials takes a while, and a request to stop the job must be noticed meanwhile.
                tokio::task::yield_now().await;
            }
            let stop = &self.context.cancellation.stop;
            let due = if self.is_ending() { None } else { self.queue.next_due(Instant::now()) };
            let (plan, result) = match due {
                None => match running.next().await {
                    Some(ended) => ended,
                    None => break,
                },
                Some(due) => tokio::select! {
                    Some(ended) = running.next() => ended,
                    () = tokio::time::sleep_until(due) => continue,
                    () = stop.cancelled() => continue,
                },
            };
            let outcome = match result {
                Ok(outcome) => outcome,
                Err(error) => self.context.record_panic(&plan, &error).await,
            };
            self.queue.ended(&plan);
            self.record_outcome(&plan, outcome);
            if let Err(problem) = self.write_result(running.count(), None) {
                self.context.log.line(problem);
            }
        }
        // An outcome whose retry did not begin counts as it is. A resumed job retries it.
        self.queue.give_up().for_each(|before| self.attempts.count(before));
    }

    fn next_to_start(&mut self) -> Option<NextTrial> {
        if self.is_ending() { None } else { self.queue.take(Instant::now()) }
    }

    fn record_outcome(&mut self, plan: &TrialPlan, outcome: TrialOutcome) {
        let (name, log) = (&outcome.name, &self.context.log);
        log.line(format!("{name} {}", outcome.end_in_words()));
        for note in outcome.returned.iter().flat_map(Returned::notes) {
            log.line(format!("{name} handed back: {note}"));
        }
        self.empty_in_a_row = match outcome.is_captured() {
            // Such a trial has no complete call and gives no evidence either way.
            None => self.empty_in_a_row,
            Some(true) => 0,
            Some(false) => self.empty_in_a_row.saturating_add(1),
        };
        if outcome.lacks_the_reward() {
            self.progress.warn_of_no_reward(&outcome);
        }
        let is_in_vain = self.max_empty > 0 && self.empty_in_a_row >= self.max_empty;
        let in_vain = is_in_vain.then(|| nothing_to_train(self.empty_in_a_row));
        if let Some(why) = outcome.halts.clone().or(in_vain).filter(|_| self.halted.is_none()) {
            log.line(format!("no further trial begins: {why}"));
            self.halted = Some(why);
        }
        if let Some(tracer) = &self.context.tracer {
            spans::record(tracer, self.records.job_name(), plan, &outcome);
        }
        let again = self.next_attempt(plan, &outcome);
        self.progress.events.trial_ended(&outcome, again.is_some());
        match again {
            // The failed outcome counts only if its retry never begins, so the queue holds it.
            Some((next, wait)) => {
                self.context.log.line(format!(
                    "{name} is tried again as {} in {} s",
                    next.name,
                    wait.as_secs_f64()
                ));
                self.progress.trial_retried(&outcome, wait);
                self.queue.again(next, Instant::now() + wait, outcome);
            }
            None => {
                self.progress.trial_ended(&outcome);
                self.attempts.count(outcome);
            }
        }
    }

    /// Returns the next attempt and the wait before it, if a retry is due.
    fn next_attempt(&self, plan: &TrialPlan, outcome: &TrialOutcome) -> Option<(TrialPlan, Duration)> {
        if self.is_ending() || !outcome.awaits_retry {
            return None;
        }
        let wait = self.context.retry.wait(outcome, plan.retries)?;
        let number = plan.attempt.checked_add(1)?;
        let mut next = plan::trial(plan, self.records.job_id(), plan.sample_index, number).ok()?;
        next.retries = plan.retries.saturating_add(1);
        if outcome.opened {
            next.supersedes.push((outcome.name.clone(), outcome.reward_to_put()));
        }
        Some((next, wait))
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

fn nothing_to_train(trials: u32) -> String {
    format!(
        "{trials} trials in a row were captured without anything to train: the upstream, or a router before it, sends no token \
         ids or no logprobs; the proxy's log names the field (--max-empty-trials 0 runs the job all the same)"
    )
}

async fn close(place: TrialHost) {
    if let Err(error) = place.close().await {
        tracing::warn!(error = chain(&error), "cannot clean up after a job that did not start");
    }
}
