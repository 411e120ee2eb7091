//! The verification of one trial: its tests, its result and its reward at the proxy.

use super::RegradeSettings;
use super::choice::{Choice, Work, choose};
use super::grade::{Grading, Shared, Verdict};
use super::prepared::Prepared;
use super::recorded::Recorded;
use super::report::{Outcome, RegradedTrial, Standing};
use crate::admin_client::AdminClient;
use crate::failure::{Cause, chain};
use crate::job_dir::{Log, RegradeDir, write_json};

/// A running verification.
pub(super) struct Run<'a> {
    pub(super) prepared: &'a Prepared,
    pub(super) settings: &'a RegradeSettings,
    pub(super) shared: &'a Shared<'a>,
    pub(super) dir: &'a RegradeDir,
    pub(super) log: &'a Log,
    pub(super) admin: &'a AdminClient,
}

impl Run<'_> {
    /// Settles the trial at this place, and returns it with the problem of recording it. Returns `None` if the run is
    /// stopped.
    pub(super) async fn settle(
        &self,
        at: usize,
        trial: &Recorded,
    ) -> Option<(usize, RegradedTrial, Option<String>)> {
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
