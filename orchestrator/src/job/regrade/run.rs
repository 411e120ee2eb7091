//! Runs a later verification: chooses the trials, runs their tests, and records the version.

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use rolltap_rollout::ids::RewardVersion;
use serde_json::Value;

use super::choice::{Choice, Work, choose};
use super::grade::{Grading, Shared, Verdict};
use super::recorded::Recorded;
use super::report::{Outcome, RegradeReport, RegradedTrial, Standing};
use super::tasks::Tasks;
use super::{RegradeError, RegradeSettings, place, records, rows, summary};
use crate::admin_client::AdminClient;
use crate::common::cancellation::Cancellation;
use crate::environment::EnvironmentKind;
use crate::failure::{Cause, chain};
use crate::job::config::JobFile;
use crate::job::{JobError, Progress, resume};
use crate::job_dir::{JobDir, Log, RegradeDir, write_json};

/// Verifies the trials of a job again, until `cancellation` stops it. Nothing that it started keeps running.
///
/// # Errors
/// Fails only before the first tests run. Later problems are in the report.
pub fn regrade(
    settings: RegradeSettings,
    cancellation: Cancellation,
) -> BoxFuture<'static, Result<RegradeReport, RegradeError>> {
    // Boxed for the reason given at `run_job`.
    Box::pin(async move {
        let stopped = || JobError::Stopped;
        let prepared = cancellation.unless_stopped(Box::pin(Prepared::read(&settings))).await;
        let prepared = prepared.ok_or_else(stopped)??;
        prepared.run(&settings, &cancellation).await
    })
}

/// A job whose trials can be verified again.
struct Prepared {
    job: JobDir,
    file: JobFile,
    kind: EnvironmentKind,
    tasks: Tasks,
    trials: Vec<Recorded>,
    /// The file with the rollouts of the job.
    rollouts: PathBuf,
    version: RewardVersion,
    config: Value,
    /// Whether an earlier run began this version.
    is_continued: bool,
    /// Keeps the directory for this process.
    _claim: crate::job_dir::Claim,
}

impl Prepared {
    async fn read(settings: &RegradeSettings) -> Result<Self, RegradeError> {
        let not_a_job = || RegradeError::NotAJob(settings.job_dir.clone());
        let path = settings.job_dir.canonicalize().map_err(|_| not_a_job())?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            return Err(not_a_job());
        };
        if !path.join("config.json").is_file() {
            return Err(not_a_job());
        }
        let claim = JobDir::claim(parent, name)?;
        let job = claim.dir.clone();
        let file = JobFile::read(&job.config())?;
        let left = resume::look(&job).await?.ok_or_else(not_a_job)?;
        if !left.has_ended {
            return Err(RegradeError::Unfinished(path));
        }
        // Reading JSON Lines needs no decoding of columns.
        let rollouts = [job.rollouts_jsonl(), job.rollouts_parquet()].into_iter().find(|file| file.is_file());
        let rollouts = rollouts.ok_or_else(|| RegradeError::NoRows(path.clone()))?;
        let trials = left.last_attempts().filter_map(|(name, result)| Recorded::read(name, result?));
        let trials: Vec<_> = trials.collect();
        if trials.is_empty() {
            return Err(RegradeError::NoTrials(path));
        }
        let kind = place::environment(settings, &file)?;
        let extras = file.job.overrides()?.extras()?;
        let tasks = Tasks::load(settings, &file, &extras).await?;
        tasks.check(&trials)?;
        let mut chosen = VersionChoice::of(settings, &job)?;
        let config = records::config(&chosen.version, settings, kind, &tasks, &trials);
        if let Some(before) = &chosen.before
            && let Err(differs) = records::is_same(&chosen.version, before, &config)
        {
            // An interrupted version with another verifier stays as it is, and a new one begins.
            chosen = VersionChoice { version: chosen.or_next.ok_or(differs)?, before: None, or_next: None };
        }
        let config = records::config(&chosen.version, settings, kind, &tasks, &trials);
        let (version, is_continued) = (chosen.version, chosen.before.is_some());
        Ok(Self { job, file, kind, tasks, trials, rollouts, version, config, is_continued, _claim: claim })
    }

    async fn run(
        self,
        settings: &RegradeSettings,
        cancellation: &Cancellation,
    ) -> Result<RegradeReport, RegradeError> {
        let host = place::host(self.kind, &self.job).await?;
        let (proxy, admin) = match place::proxy(settings, &self.file, &self.job).await {
            Ok(started) => started,
            Err(error) => {
                // An error of the engine would hide the error of the proxy.
                drop(host.close().await);
                return Err(error);
            }
        };
        let graded = self.grade_all(settings, &host, &admin, cancellation).await;
        let mut problems: Vec<_> = proxy.stop().await.into_iter().collect();
        if let Err(error) = host.close().await {
            problems.push(format!("environments not removed: {}", chain(&error)));
        }
        let mut report = graded?;
        report.problems.extend(problems);
        Ok(report)
    }

    async fn grade_all(
        &self,
        settings: &RegradeSettings,
        host: &crate::environment::Host,
        admin: &AdminClient,
        cancellation: &Cancellation,
    ) -> Result<RegradeReport, RegradeError> {
        let dir = self.job.regrade(&self.version);
        let write = |path: PathBuf| move |source| JobError::Write { path, source };
        dir.create().map_err(write(dir.path().to_owned()))?;
        if !self.is_continued {
            write_json(&dir.config(), &self.config).map_err(write(dir.config()))?;
        }
        let log = Log::create(&dir.log()).map_err(write(dir.log()))?;
        let progress = Progress::for_stderr(settings.quiet);
        progress.note(&summary::beginning(&self.job, &self.version, self.trials.len(), self.is_continued));
        let extras = self.file.job.overrides()?.extras()?;
        let shared = Shared {
            job: &self.job,
            host,
            timeouts: self.file.job.timeouts(&self.file.own),
            extras: &extras,
            cancellation,
        };
        let run = Run { prepared: self, settings, shared: &shared, dir: &dir, log: &log, admin };
        let started_at = Timestamp::now();
        let at_once = settings.concurrency.unwrap_or_else(|| self.file.job.concurrency()).get();
        let settling: Vec<_> =
            self.trials.iter().enumerate().map(|(at, trial)| run.settle(at, trial)).collect();
        let mut running = stream::iter(settling).buffer_unordered(at_once);
        let (mut ended, mut problems, mut left) = (Vec::new(), Vec::new(), 0);
        while let Some(settled) = running.next().await {
            let Some((at, trial, problem)) = settled else {
                left += 1;
                continue;
            };
            problems.extend(problem);
            progress.note(&summary::line(&trial, ended.len() + 1, self.trials.len()));
            ended.push((at, trial));
        }
        drop(running);
        ended.sort_by_key(|(at, _)| *at);
        let trials: Vec<_> = ended.into_iter().map(|(_, trial)| trial).collect();
        let rollouts = match left {
            0 => {
                let (from, to) = (self.rollouts.clone(), dir.clone());
                let (version, of_version) = (self.version.clone(), trials.clone());
                let copy = move || rows::write(&from, &to, &version, &of_version);
                let written =
                    tokio::task::spawn_blocking(copy).await.map_err(|error| error.to_string()).flatten();
                written.map_err(|problem| problems.push(problem)).ok()
            }
            _ => None,
        };
        let finished_at = (left == 0).then(Timestamp::now);
        let result = records::result(&self.version, started_at, finished_at, &trials);
        if let Err(error) = write_json(&dir.result(), &result) {
            problems.push(format!("cannot write {}: {error}", dir.result().display()));
        }
        problems.iter().for_each(|problem| log.line(problem));
        let (job, version) = (self.job.clone(), self.version.clone());
        Ok(RegradeReport { job, dir, version, trials, left, rollouts, problems })
    }
}

/// The version to make or to complete.
struct VersionChoice {
    version: RewardVersion,
    /// The settings of its earlier run.
    before: Option<Value>,
    /// The version to make if the settings differ. `None` if the user named the version.
    or_next: Option<RewardVersion>,
}

impl VersionChoice {
    fn of(settings: &RegradeSettings, job: &JobDir) -> Result<Self, RegradeError> {
        let read = |path: PathBuf| {
            std::fs::read(path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        };
        let config = |version: &RewardVersion| read(job.regrade(version).config());
        if let Some(version) = &settings.version {
            return Ok(Self { version: version.clone(), before: config(version), or_next: None });
        }
        let numbered =
            |number: u64| RewardVersion::new(format!("regrade-{number}")).map_err(resume::ResumeError::Name);
        let is_taken = |version: &RewardVersion| job.regrade(version).path().exists();
        let mut number = 1;
        while is_taken(&numbered(number)?) {
            number += 1;
        }
        let next = numbered(number)?;
        let Some(last) = number.checked_sub(1).filter(|last| *last > 0) else {
            return Ok(Self { version: next, before: None, or_next: None });
        };
        let last = numbered(last)?;
        let result = read(job.regrade(&last).result());
        let has_ended = result.is_some_and(|result| result.get("finished_at").is_some_and(Value::is_string));
        match (has_ended, config(&last)) {
            (false, Some(before)) => Ok(Self { version: last, before: Some(before), or_next: Some(next) }),
            _ => Ok(Self { version: next, before: None, or_next: None }),
        }
    }
}

/// A running verification.
struct Run<'a> {
    prepared: &'a Prepared,
    settings: &'a RegradeSettings,
    shared: &'a Shared<'a>,
    dir: &'a RegradeDir,
    log: &'a Log,
    admin: &'a AdminClient,
}

impl Run<'_> {
    /// Settles the trial at this place, and returns it with the problem of recording it. Returns `None` if the run is
    /// stopped.
    async fn settle(&self, at: usize, trial: &Recorded) -> Option<(usize, RegradedTrial, Option<String>)> {
        let settled = match self.earlier(trial) {
            Some(earlier) => earlier,
            None if self.shared.cancellation.stop.is_cancelled() => return None,
            None => Box::pin(self.verify(trial)).await?,
        };
        let problem = self.put(&settled).await;
        Some((at, settled, problem))
    }

    /// Returns the outcome that an earlier run of the version recorded.
    fn earlier(&self, trial: &Recorded) -> Option<RegradedTrial> {
        let text = std::fs::read(self.dir.trial(&trial.name).result()).ok()?;
        serde_json::from_slice(&text).ok()
    }

    async fn verify(&self, trial: &Recorded) -> Option<RegradedTrial> {
        let Prepared { tasks, job, .. } = self.prepared;
        let begun = RegradedTrial::begun(trial);
        let choice = choose(trial, tasks, self.settings.failed_only, job, self.shared.host).await;
        let ended = match choice {
            Choice::Verify(work) => self.run_tests(trial, begun, &work).await?,
            Choice::Keep(why) => {
                begun.ended(Outcome::Unchanged, Some(Standing::recorded(trial)), Some(why.to_owned()))
            }
            // Another run may find what is missing now, so nothing is recorded.
            Choice::Refuse(why) => return Some(begun.ended(Outcome::Refused, None, Some(why))),
        };
        if ended.outcome == Outcome::Failed {
            return Some(ended);
        }
        match self.record(trial, &ended) {
            Ok(()) => Some(ended),
            Err(error) => {
                let why = format!("its result cannot be written: {error}");
                Some(ended.ended(Outcome::Failed, None, Some(why)))
            }
        }
    }

    /// Returns `None` if the run is stopped.
    async fn run_tests(&self, trial: &Recorded, begun: RegradedTrial, work: &Work) -> Option<RegradedTrial> {
        let failed = |begun: RegradedTrial, why: String| Some(begun.ended(Outcome::Failed, None, Some(why)));
        let task = match self.prepared.tasks.of(trial) {
            Ok(task) => task,
            Err(why) => return failed(begun, why),
        };
        let dir = match self.dir.create_trial(&trial.name) {
            Ok(dir) => dir,
            Err(error) => return failed(begun, format!("its directory cannot be made: {error}")),
        };
        let log = match Log::create(&dir.log()) {
            Ok(log) => log,
            Err(error) => return failed(begun, format!("its log cannot be made: {error}")),
        };
        self.log.line(format!("{} begins", trial.name));
        let grading = Grading { shared: self.shared, trial, task, dir: &dir, log: &log };
        let ended = grading.run(work).await;
        // Only the verifier's files are new.
        for copied in [dir.agent(), dir.artifacts()] {
            let _ = std::fs::remove_dir_all(copied);
        }
        match ended {
            Ok(Verdict { rewards, failure }) => {
                let before = trial.failure_before_tests().cloned();
                let standing = Standing::of(trial, rewards, before.or(failure));
                self.log.line(format!("{} ended", trial.name));
                Some(begun.ended(Outcome::Regraded, Some(standing), None))
            }
            Err(failure) if failure.cause == Cause::Cancelled => None,
            Err(failure) => {
                self.log.line(format!("{} failed: {failure}", trial.name));
                failed(begun, failure.to_string())
            }
        }
    }

    /// Writes the result. From then on, later runs of the version do not run the tests again.
    fn record(&self, trial: &Recorded, ended: &RegradedTrial) -> std::io::Result<()> {
        let dir = self.dir.trial(&trial.name);
        std::fs::create_dir_all(dir.path())?;
        if let Some(failure) = ended.after.as_ref().and_then(|after| after.failure.as_ref()) {
            std::fs::write(dir.exception(), format!("{failure}\n"))?;
        }
        write_json(&dir.result(), ended)
    }

    /// Sets the reward of the version at the proxy. Equal rewards may be set again.
    async fn put(&self, ended: &RegradedTrial) -> Option<String> {
        let after = ended.after.as_ref().filter(|_| ended.is_at_proxy)?;
        let put = self.admin.put_reward(&ended.trial, &after.to_put(&self.prepared.version)).await;
        let error = put.err()?;
        Some(format!("the reward of {} is not at the proxy: {}", ended.trial, chain(&error)))
    }
}
