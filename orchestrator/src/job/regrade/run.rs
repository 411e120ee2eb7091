//! Runs a later verification: runs the tests of the chosen trials, and records the version.

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;

use super::grade::Shared;
use super::prepared::Prepared;
use super::report::RegradeReport;
use super::settle::Run;
use super::{RegradeError, RegradeSettings, place, records, rows, summary};
use crate::admin_client::AdminClient;
use crate::common::cancellation::Cancellation;
use crate::environment::Host;
use crate::failure::chain;
use crate::job::{JobError, Progress};
use crate::job_dir::{Log, write_json};

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

impl Prepared {
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
        host: &Host,
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
        let shared = Shared {
            job: &self.job,
            host,
            timeouts: self.file.job.timeouts(&self.file.own),
            extras: &self.extras,
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
