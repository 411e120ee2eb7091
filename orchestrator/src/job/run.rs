//! Running a job: everything is checked and started, trials run so many at once, and everything is put away again.

use std::collections::HashMap;
use std::sync::Arc;
use std::vec;

use jiff::{Timestamp, Zoned};
use rolltap_proxy::api::PutReward;
use tokio::task::{Id, JoinError, JoinSet};
use uuid::Uuid;

use super::plan::plan;
use super::proxy::{JobProxy, choose_models};
use super::{JobContext, JobError, JobReport, JobSettings, Progress, rollouts};
use crate::agents::AgentSpec;
use crate::cancellation::Cancellation;
use crate::environment::{Host, JobLabel};
use crate::job_dir::{JobDir, Log, default_job_name, write_json};
use crate::records::Records;
use crate::returned::Returned;
use crate::task::Task;
use crate::trial::{self, Cause, Phase, TrialFailure, TrialOutcome, TrialPlan, chain};

/// Runs a job to its end, or to its early end by `cancellation`. Nothing that it started is left running.
///
/// # Errors
/// Only before anything started; no job directory is left behind then. Later trouble is in the report.
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
    let id = Uuid::now_v7();
    let tasks = std::mem::take(&mut settings.tasks);
    let agents: Vec<_> = settings.agents.iter().cloned().map(Arc::new).collect();
    let plans = plan(id, &job_name, tasks, &agents, settings.samples, settings.timeouts)?;
    let dir = JobDir::create(&settings.jobs_dir, &job_name)?;
    let records = Records::new(id, &job_name, &settings, &dir);
    match Job::start(settings, dir.clone(), records, &plans, cancellation).await {
        Ok(job) => Ok(job.run(plans, progress).await),
        Err(error) => {
            dir.discard();
            Err(error)
        }
    }
}

fn check(settings: &JobSettings) -> Result<(), JobError> {
    settings.timeouts.check()?;
    for agent in &settings.agents {
        for task in &settings.tasks {
            if let Some(what) = agent.spec.would_not_see(task) {
                let agent = agent.spec.name().to_owned();
                return Err(JobError::WouldNotSee { task: task.dir.clone(), agent, what });
            }
        }
    }
    if settings.agents.iter().any(|agent| agent.spec == AgentSpec::Oracle) {
        let scripts = settings.tasks.iter().flat_map(Task::solution_scripts);
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
    concurrency: usize,
}

impl Job {
    async fn start(
        settings: JobSettings,
        dir: JobDir,
        records: Records,
        plans: &[TrialPlan],
        cancellation: Cancellation,
    ) -> Result<Self, JobError> {
        let write = |path| move |source| JobError::Write { path, source };
        write_json(&dir.config(), &records.job_config(plans)).map_err(write(dir.config()))?;
        let log = Log::create(&dir.log()).map_err(write(dir.log()))?;
        let kind = settings.environment;
        let label = JobLabel::new(records.job_name());
        let host = Host::connect(kind, &label).await.map_err(|source| JobError::Host { kind, source })?;
        let host = host.force_build(settings.force_build);
        let (proxy, admin) = match JobProxy::start(settings.proxy, host.bind_address(), dir.data()).await {
            Ok(started) => started,
            Err(error) => {
                close(host).await;
                return Err(error);
            }
        };
        let context = JobContext {
            started_at: Timestamp::now(),
            dir,
            host,
            environment: kind,
            admin,
            history: settings.history,
            sampling: settings.sampling,
            records,
            cancellation,
        };
        Ok(Self { context: Arc::new(context), proxy, log, concurrency: settings.concurrency.get() })
    }

    async fn run(self, plans: Vec<TrialPlan>, progress: Progress) -> JobReport {
        let planned = plans.len();
        self.log.line(format!("{planned} trials, {} at once", self.concurrency));
        progress.start(planned);
        let order: HashMap<_, _> =
            plans.iter().enumerate().map(|(at, plan)| (plan.name.clone(), at)).collect();
        let facts = plans.iter().map(|plan| plan.facts(&self.context)).collect::<Vec<_>>();
        let mut trials = self.run_trials(plans, &progress).await;
        trials.sort_by_key(|trial| order.get(&trial.name).copied());
        progress.end();
        let mut problems = Vec::new();
        let rollouts = match rollouts::gather(&self.context, &trials, &facts).await {
            Ok((files, missing)) => {
                problems.extend(missing);
                Some(files)
            }
            Err(error) => {
                problems.push(chain(&error));
                None
            }
        };
        problems.extend(self.write_result(&trials, planned, Some(Timestamp::now())).err());
        let dir = self.context.dir.clone();
        problems.extend(self.put_away().await);
        JobReport { dir, trials, planned, rollouts, problems }
    }

    async fn run_trials(&self, plans: Vec<TrialPlan>, progress: &Progress) -> Vec<TrialOutcome> {
        let planned = plans.len();
        let mut waiting = plans.into_iter();
        let mut running = Running::default();
        let mut done: Vec<TrialOutcome> = Vec::new();
        loop {
            running.fill_up(self, &mut waiting);
            let Some((plan, result)) = running.next().await else { break };
            let outcome = match result {
                Ok(outcome) => outcome,
                Err(error) => self.bury(&plan, &error).await,
            };
            self.log.line(format!("{} ended, reward {:?}", outcome.name, outcome.reward));
            for note in outcome.returned.iter().flat_map(Returned::notes) {
                self.log.line(format!("{} handed back: {note}", outcome.name));
            }
            done.push(outcome);
            progress.trial_ended(&done, planned);
            if let Err(problem) = self.write_result(&done, planned, None) {
                self.log.line(problem);
            }
        }
        done
    }

    /// A trial whose task died by a bug of ours: its record at the proxy is closed all the same. Its environment goes
    /// with the job's.
    async fn bury(&self, plan: &TrialPlan, error: &JoinError) -> TrialOutcome {
        let failure = TrialFailure::from_error(Phase::Agent, Cause::Internal, error);
        self.log.line(format!("{} died: {failure}", plan.name));
        let mut outcome = TrialOutcome::new(plan).failed(failure);
        let none = PutReward {
            valid: Some(false),
            failure_cause: Some(Cause::Internal.name().to_owned()),
            ..PutReward::default()
        };
        if self.context.admin.seal(&plan.name).await.is_ok() {
            outcome.opened = true;
            outcome.status = self.context.admin.put_reward(&plan.name, &none).await.ok();
        }
        outcome
    }

    fn write_result(
        &self,
        trials: &[TrialOutcome],
        planned: usize,
        finished_at: Option<Timestamp>,
    ) -> Result<(), String> {
        let path = self.context.dir.result();
        let record = self.context.records.job_result(self.context.started_at, trials, planned, finished_at);
        write_json(&path, &record).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    async fn put_away(self) -> Option<String> {
        let problem = self.proxy.stop().await;
        // No trial runs any more, so this is the only owner.
        let Some(context) = Arc::into_inner(self.context) else { return problem };
        let unclean = context.host.close().await.err();
        let unclean = unclean.map(|error| format!("environments not removed: {}", chain(&error)));
        for problem in problem.iter().chain(&unclean) {
            self.log.line(problem);
        }
        problem.or(unclean)
    }
}

async fn close(host: Host) {
    if let Err(error) = host.close().await {
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
    fn fill_up(&mut self, job: &Job, waiting: &mut vec::IntoIter<TrialPlan>) {
        while self.tasks.len() < job.concurrency && !job.context.cancellation.stop.is_cancelled() {
            let Some(plan) = waiting.next() else { break };
            let context = Arc::clone(&job.context);
            let trial = plan.clone();
            let handle = self.tasks.spawn(async move { trial::run(&context, trial).await });
            self.plans.insert(handle.id(), plan);
        }
    }

    async fn next(&mut self) -> Option<(TrialPlan, Result<TrialOutcome, JoinError>)> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok((id, outcome)) => (id, Ok(outcome)),
            Err(error) => (error.id(), Err(error)),
        };
        self.plans.remove(&id).map(|plan| (plan, result))
    }
}
