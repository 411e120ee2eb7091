//! The parts of verification that only a trial has: its limits, its log, and the manifest of its artifacts.

use crate::environment::Environment;
use crate::failure::{Phase, TimeoutPolicy, TrialFailure};
use crate::task::SeparateVerifier;
use crate::trial::{DOWNLOAD_TIMEOUT, Trial};
use crate::verify::{self, Artifacts, Collected, VerificationContext};

/// Cancellation of the job and the trial's deadline end all work, except for downloads.
impl VerificationContext for Trial<'_> {
    type Separate = Box<Environment>;

    fn timeouts(&self) -> &TimeoutPolicy {
        &self.plan.timeouts
    }

    fn log_line(&self, line: String) {
        self.log.line(line);
    }

    fn time_is_over(&self) -> Option<TrialFailure> {
        self.has_ended(Phase::Verifier)
    }

    async fn bounded<T>(&self, work: impl Future<Output = T>) -> Result<T, TrialFailure> {
        self.within(Phase::Verifier, work).await
    }

    async fn download<T>(&self, subject: &str, work: impl Future<Output = T>) -> Option<T> {
        // A stopped job still downloads. Only a second Ctrl-C ends this.
        let download = tokio::time::timeout(DOWNLOAD_TIMEOUT, work);
        let problem = match self.context.cancellation.unless_hurried(download).await {
            Some(Ok(done)) => return Some(done),
            Some(Err(_)) => format!(" within {} s", DOWNLOAD_TIMEOUT.as_secs()),
            None => ": in a hurry".to_owned(),
        };
        self.log.line(format!("{subject} not collected{problem}"));
        None
    }

    async fn start_separate(&self, separate: &SeparateVerifier) -> Result<Box<Environment>, TrialFailure> {
        let label = format!("{}-verifier", self.plan.name);
        self.start(&separate.environment, &label, Phase::Verifier).await.map(Box::new)
    }

    async fn stop_separate(&self, environment: Box<Environment>) {
        self.stop(*environment).await;
    }
}

impl Trial<'_> {
    /// Saves logs and artifacts of a trial in which no agent ran.
    pub(crate) async fn save(&self, environment: &Environment) {
        let artifacts = Artifacts::new(&self.task.config.artifacts, self.dir.artifacts());
        let collected = verify::collect(self, environment, &self.task, &artifacts).await;
        let logs_came = verify::download_logs(self, environment, &self.dir.logs()).await;
        self.write_manifest(&artifacts, collected, logs_came);
    }

    pub(crate) fn write_manifest(&self, artifacts: &Artifacts, collected: Vec<Collected>, logs_came: bool) {
        if let Err(error) = artifacts.write_manifest(collected, logs_came) {
            self.log.line(format!("the list of artifacts is not written: {error}"));
        }
    }
}
