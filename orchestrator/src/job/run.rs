//! Running a job: everything is checked and started, trials run so many at once, and everything is put away again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, Zoned};
use rolltap_rollout::ids::GroupId;
use serde_json::Value;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use uuid::Uuid;

use super::events::Event;
use super::plan::{self, plan};
use super::proxy::{JobProxy, choose_models};
use super::queue::{Queue, Waiting};
use super::resume::{self, Left, Remaining};
use super::{JobContext, JobError, JobReport, JobSettings, Place, Progress, rollouts};
use crate::agents::AgentSpec;
use crate::cancellation::Cancellation;
use crate::environment::{EnvironmentKind, JobLabel};
use crate::job_dir::{JobDir, Log, default_job_name, write_json};
use crate::records::{Records, Standing};
use crate::returned::Returned;
use crate::trial::{self, Cause, Phase, TrialFailure, TrialOutcome, TrialPlan, chain};

/// Runs a job to its end, or to its early end by `cancellation`. Nothing that it started is left running. Where the job's
/// directory is there already, of an equal job, it goes on with that one.
///
/// # Errors
/// Only before anything started; no new job directory is left behind then. Later trouble is in the report.
pub async fn run_job(
    mut settings: JobSettings,
    progress: Progress,
    cancellation: Cancellation,
) -> Result<JobReport, JobError> {
    check(&settings)?;
    settings.agents = choose_models(&settings).await?;
    for agent in &mut settings.agents {
        let installed = cancellation.unless_stopped(Box::pin(agent.spec.install())).await;
        installed.ok_or_else(|| JobError::Cancelled(agent.spec.name().to_owned()))??;
    }
    let job_name = settings.job_name.clone().unwrap_or_else(|| default_job_name(&Zoned::now()));
    let mut tasks = std::mem::take(&mut settings.tasks);
    for task in &mut tasks {
        settings.overrides.apply(&mut task.task)?;
    }
    let agents: Vec<_> = settings.agents.iter().cloned().map(Arc::new).collect();
    let claim = JobDir::claim(&settings.jobs_dir, &job_name)?;
    let prepared = resume::look(&claim.dir).map_err(JobError::from).and_then(|left| {
        let id = left.as_ref().map_or_else(Uuid::now_v7, |left| left.job_id);
        let extras = settings.overrides.extras()?;
        let plans = plan(id, &job_name, tasks, &agents, settings.samples, settings.timeouts, &extras)?;
        let records = Records::new(id, &job_name, &settings, &plans, &claim.dir);
        let versions = records.versions(&plans);
        let order = plans.iter().enumerate().map(|(at, plan)| (sample(plan), at)).collect();
        let remaining = match &left {
            Some(left) => {
                left.is_of(&claim.dir, records.job_config())?;
                left.sort(&claim.dir, plans)?
            }
            None => Remaining { plans, ..Remaining::default() },
        };
        Ok(Prepared { left, records, versions, remaining, order })
    });
    let started = match prepared {
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

/// What a job is to do, known before anything is started.
struct Prepared {
    left: Option<Left>,
    records: Records,
    versions: Value,
    remaining: Remaining,
    order: HashMap<(GroupId, u32), usize>,
}

/// What tells a sample of a job from the others.
fn sample(plan: &TrialPlan) -> (GroupId, u32) {
    (plan.group_id.clone(), plan.sample_index)
}

fn check(settings: &JobSettings) -> Result<(), JobError> {
    settings.timeouts.check()?;
    for task in &settings.tasks {
        if let Some(what) = settings.environment.unsupported(&task.task) {
            let (kind, dir) = (settings.environment, task.task.dir.clone());
            return Err(JobError::Unsupported { kind, dir, what });
        }
    }
    let by_harbor = settings.environment == EnvironmentKind::Harbor;
    for agent in &settings.agents {
        if matches!(agent.spec, AgentSpec::Harbor(_)) != by_harbor {
            let (agent, kind) = (agent.spec.name().to_owned(), settings.environment);
            return Err(JobError::WrongAgent { agent, kind });
        }
        for task in &settings.tasks {
            if let Some(what) = agent.spec.would_not_see(&agent.sees(&task.task)) {
                let agent = agent.spec.name().to_owned();
                return Err(JobError::WouldNotSee { task: task.task.dir.clone(), agent, what });
            }
        }
    }
    if settings.agents.iter().any(|agent| agent.spec == AgentSpec::Oracle) {
        let scripts = settings.tasks.iter().flat_map(|task| task.task.solution_scripts());
        if let Some(missing) = scripts.into_iter().find(|script| !script.is_file()) {
            return Err(JobError::NoSolution(missing));
        }
    }
    Ok(())
}

struct Job {
    context: Arc<JobContext>,
    proxy: JobProxy,
    log: Log,
    progress: Progress,
    /// The place of each sample in the job.
    order: HashMap<(GroupId, u32), usize>,
    /// Attempts that failed and were followed by another, in earlier runs of the job.
    retries_before: u64,
    /// Such attempts in this one.
    retries: u64,
    /// The last attempts at the samples that ended, this run's and those before.
    done: Vec<TrialOutcome>,
    /// Attempts that do not count any more.
    superseded: Vec<TrialOutcome>,
    queue: Queue,
}

impl Job {
    async fn start(
        settings: JobSettings,
        dir: JobDir,
        prepared: Prepared,
        progress: Progress,
        cancellation: Cancellation,
    ) -> Result<Self, JobError> {
        let Prepared { left, records, versions, remaining, order } = prepared;
        let write = |path| move |source| JobError::Write { path, source };
        // The configuration is written last: a directory without it is as good as new.
        if left.is_none() {
            write_json(&dir.versions(), &versions).map_err(write(dir.versions()))?;
            write_json(&dir.config(), records.job_config()).map_err(write(dir.config()))?;
        }
        let log = Log::create(&dir.log()).map_err(write(dir.log()))?;
        let kind = settings.environment;
        let label = JobLabel::new(records.job_name());
        let place = Place::connect(&settings, &remaining.plans, &label, &dir).await?;
        let (proxy, admin) = match JobProxy::start(settings.proxy, place.bind_address(), dir.data()).await {
            Ok(started) => started,
            Err(error) => {
                close(place).await;
                return Err(error);
            }
        };
        let started_at = left.as_ref().and_then(|left| left.started_at).unwrap_or_else(Timestamp::now);
        let context = JobContext {
            started_at,
            dir,
            place,
            environment: kind,
            admin,
            history: settings.history,
            sampling: settings.sampling,
            retry: settings.retry,
            events: Arc::clone(&progress.events),
            records,
            cancellation,
        };
        let waiting = remaining.plans.iter().cloned().map(Waiting::now);
        let mut job = Self {
            context: Arc::new(context),
            proxy,
            log,
            progress,
            order,
            retries_before: left.map_or(0, |left| left.retries),
            retries: 0,
            done: remaining.done,
            superseded: remaining.older,
            queue: Queue::new(waiting, settings.concurrency, settings.per_task),
        };
        job.put_rewards_left().await;
        for plan in &remaining.interrupted {
            let outcome = job.end_interrupted(plan).await;
            job.superseded.push(outcome);
        }
        Ok(job)
    }

    /// A process that died may have written a result of which the proxy was not told any more.
    async fn put_rewards_left(&mut self) {
        for outcome in self.done.iter_mut().filter(|outcome| outcome.opened) {
            if outcome.status.as_ref().is_some_and(|status| status.completed_at.is_some()) {
                continue;
            }
            match self.context.admin.put_reward(&outcome.name, &outcome.reward_to_put()).await {
                Ok(status) => outcome.status = Some(status),
                Err(error) => self.log.line(format!("reward of {} not put: {}", outcome.name, chain(&error))),
            }
        }
    }

    /// Ends what an earlier run of the job left open: its record at the proxy is closed, and says so, as does its folder.
    async fn end_interrupted(&self, plan: &TrialPlan) -> TrialOutcome {
        let mut outcome = resume::interrupted(plan);
        if let Ok(status) = self.context.admin.seal(&plan.name).await {
            outcome.opened = true;
            outcome.status = Some(status);
        }
        let record = self.context.records.trial_result(plan, &outcome);
        if let Err(error) = write_json(&self.context.dir.trial(&plan.name).result(), &record) {
            self.log.line(format!("result of {} not written: {error}", plan.name));
        }
        self.log.line(format!("{} was interrupted", plan.name));
        outcome
    }

    async fn run(mut self) -> JobReport {
        let (planned, before) = (self.order.len(), self.done.len());
        self.log.line(format!("{planned} trials, {before} of them ended before"));
        self.progress.start(planned, &self.done);
        self.progress.events.tell(Event::JobStarted {
            job: self.context.records.job_name(),
            job_id: self.context.records.job_id(),
            dir: self.context.dir.path().display().to_string(),
            trials: planned,
            finished_before: before,
        });
        self.run_trials().await;
        self.progress.end();
        let order = std::mem::take(&mut self.order);
        let place = |trial: &TrialOutcome| {
            (order.get(&(trial.group_id.clone(), trial.sample_index)).copied(), trial.attempt)
        };
        self.done.sort_by_key(place);
        let mut all: Vec<&TrialOutcome> = self.done.iter().chain(&self.superseded).collect();
        all.sort_by_key(|trial| place(trial));
        let mut problems = Vec::new();
        let rollouts = match rollouts::gather(&self.context, &all).await {
            Ok((files, missing)) => {
                problems.extend(missing);
                Some(files)
            }
            Err(error) => {
                problems.push(chain(&error));
                None
            }
        };
        self.order = order;
        problems.extend(self.write_result(0, Some(Timestamp::now())).err());
        self.put_away(rollouts, problems).await
    }

    async fn run_trials(&mut self) {
        let mut running = Running::default();
        loop {
            while let Some(waiting) = self.next_to_start() {
                if let Some(before) = waiting.before {
                    self.superseded.push(*before);
                    self.retries += 1;
                }
                self.progress.events.trial_started(&waiting.plan);
                running.start(&self.context, waiting.plan);
            }
            let stop = &self.context.cancellation.stop;
            let due = if stop.is_cancelled() { None } else { self.queue.next_due(Instant::now()) };
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
                Err(error) => self.bury(&plan, &error).await,
            };
            self.queue.ended(&plan);
            self.take_in(plan, outcome).await;
            if let Err(problem) = self.write_result(running.tasks.len(), None) {
                self.log.line(problem);
            }
        }
        // What was to be tried again and was not counts as it is.
        let left: Vec<_> = self.queue.give_up().filter_map(|waiting| waiting.before).collect();
        for before in left {
            self.settle(*before).await;
        }
    }

    /// The attempt that is to follow this one, and how long after.
    fn next_attempt(&self, plan: &TrialPlan, outcome: &TrialOutcome) -> Option<(TrialPlan, Duration)> {
        let stopped = self.context.cancellation.stop.is_cancelled();
        if stopped || !outcome.awaits_retry {
            return None;
        }
        let wait = self.context.retry.wait(outcome, plan.retries)?;
        let number = plan.attempt.checked_add(1)?;
        let mut next = plan::attempt(plan, self.context.records.job_id(), number).ok()?;
        next.retries = plan.retries.saturating_add(1);
        if outcome.opened {
            next.supersedes.push((outcome.name.clone(), outcome.reward_to_put()));
        }
        Some((next, wait))
    }

    /// Takes an attempt as the one that counts. What waited for another gets its reward after all.
    async fn settle(&mut self, mut outcome: TrialOutcome) {
        if outcome.awaits_retry && outcome.opened {
            match self.context.admin.put_reward(&outcome.name, &outcome.reward_to_put()).await {
                Ok(status) => outcome.status = Some(status),
                Err(error) => self.log.line(format!("reward of {} not put: {}", outcome.name, chain(&error))),
            }
        }
        self.done.push(outcome);
    }

    fn next_to_start(&mut self) -> Option<Waiting> {
        let stopped = self.context.cancellation.stop.is_cancelled();
        if stopped { None } else { self.queue.take(Instant::now()) }
    }

    async fn take_in(&mut self, plan: TrialPlan, outcome: TrialOutcome) {
        let name = &outcome.name;
        self.log.line(format!("{name} ended, reward {:?}", outcome.reward));
        for note in outcome.returned.iter().flat_map(Returned::notes) {
            self.log.line(format!("{name} handed back: {note}"));
        }
        let again = self.next_attempt(&plan, &outcome);
        self.progress.events.trial_ended(&outcome, again.is_some());
        match again {
            Some((next, wait)) => {
                self.log.line(format!("{name} is tried again as {} in {} s", next.name, wait.as_secs_f64()));
                self.queue.again(next, Instant::now() + wait, outcome);
            }
            None => {
                self.settle(outcome).await;
                self.progress.trial_ended(&self.done, self.order.len());
            }
        }
    }

    /// A trial whose task died by a bug of ours: its record at the proxy is closed all the same. Its environment goes
    /// with the job's.
    async fn bury(&self, plan: &TrialPlan, error: &JoinError) -> TrialOutcome {
        let failure = TrialFailure::from_error(Phase::Agent, Cause::Internal, error);
        self.log.line(format!("{} died: {failure}", plan.name));
        let mut outcome = TrialOutcome::new(plan).failed(failure);
        outcome.awaits_retry = self.context.retry.wait(&outcome, plan.retries).is_some();
        if let Ok(status) = self.context.admin.seal(&plan.name).await {
            outcome.opened = true;
            outcome.status = Some(status);
        }
        if outcome.opened && !outcome.awaits_retry {
            outcome.status = self.context.admin.put_reward(&plan.name, &outcome.reward_to_put()).await.ok();
        }
        outcome
    }

    fn write_result(&self, running: usize, finished_at: Option<Timestamp>) -> Result<(), String> {
        let path = self.context.dir.result();
        let record = self.context.records.job_result(&Standing {
            started_at: self.context.started_at,
            finished_at,
            planned: self.order.len(),
            running,
            retries: self.retries_before + self.retries,
            trials: &self.done,
        });
        write_json(&path, &record).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    async fn put_away(
        self,
        rollouts: Option<rollouts::RolloutFiles>,
        mut problems: Vec<String>,
    ) -> JobReport {
        let (dir, planned) = (self.context.dir.clone(), self.order.len());
        let problem = self.proxy.stop().await;
        // No trial runs any more, so this is the only owner.
        let unclean = match Arc::into_inner(self.context) {
            Some(context) => context.place.close().await.err(),
            None => None,
        };
        let unclean = unclean.map(|error| format!("environments not removed: {}", chain(&error)));
        for problem in problem.into_iter().chain(unclean) {
            self.log.line(&problem);
            problems.push(problem);
        }
        let report = JobReport { dir, trials: self.done, planned, rollouts, problems };
        self.progress.events.job_ended(&report);
        report
    }
}

async fn close(place: Place) {
    if let Err(error) = place.close().await {
        tracing::warn!(error = chain(&error), "cannot clean up after a job that did not start");
    }
}

/// The trials under way, each in a task of its own so that a bug met in one harms no other.
#[derive(Default)]
struct Running {
    tasks: JoinSet<TrialOutcome>,
    plans: HashMap<Id, TrialPlan>,
}

impl Running {
    fn start(&mut self, context: &Arc<JobContext>, plan: TrialPlan) {
        let (context, trial) = (Arc::clone(context), plan.clone());
        let handle = self.tasks.spawn(async move { trial::run(&context, trial).await });
        self.plans.insert(handle.id(), plan);
    }

    /// None when nothing runs.
    async fn next(&mut self) -> Option<(TrialPlan, Result<TrialOutcome, JoinError>)> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok((id, outcome)) => (id, Ok(outcome)),
            Err(error) => (error.id(), Err(error)),
        };
        self.plans.remove(&id).map(|plan| (plan, result))
    }
}
