//! Collects logs and artifacts from a trial's environment at the end of the agent's time.

use std::time::Duration;

use crate::environment::{Environment, EnvironmentError, Exec, LogDirs};
use crate::failure::{Phase, chain};
use crate::task::{Collect, MAIN_SERVICE, Task};
use crate::trial::artifacts::{Artifacts, Collected};
use crate::trial::{DOWNLOAD_TIMEOUT, Trial};

impl Trial<'_> {
    /// Saves logs and artifacts of a trial in which no agent ran.
    pub(crate) async fn save(&self, environment: &Environment) {
        let artifacts = Artifacts::new(&self.task.config.artifacts, self.dir.artifacts());
        let collected = self.collect(environment, &self.task, &artifacts).await;
        let logs_came = self.download_logs(environment, &artifacts.of_logs(self.dir.logs())).await;
        self.write_manifest(&artifacts, collected, logs_came);
    }

    pub(crate) fn write_manifest(&self, artifacts: &Artifacts, collected: Vec<Collected>, logs_came: bool) {
        if let Err(error) = artifacts.write_manifest(collected, logs_came) {
            self.log.line(format!("the list of artifacts is not written: {error}"));
        }
    }

    /// Runs the task's own commands and fetches its artifacts. Problems are written to the trial's log.
    pub(crate) async fn collect(
        &self,
        environment: &Environment,
        task: &Task,
        artifacts: &Artifacts,
    ) -> Vec<Collected> {
        for hook in &task.config.verifier.collect {
            // A command of the task may take long, so none starts after the trial's time.
            if let Some(failure) = self.has_ended(Phase::Verifier) {
                self.log.line(format!("not run before collecting: {:?}: {failure}", hook.command));
                continue;
            }
            self.run_hook(environment, hook).await;
        }
        // The download of the logs brings all artifacts, so no other request is needed.
        if !artifacts.are_named() {
            return artifacts.come_with_the_logs();
        }
        let fetch = Box::pin(artifacts.fetch(environment, |line| self.log.line(line)));
        let fetch = tokio::time::timeout(DOWNLOAD_TIMEOUT, fetch);
        match self.context.cancellation.unless_hurried(fetch).await {
            Some(Ok(collected)) => collected,
            Some(Err(_)) => {
                self.log.line(format!("artifacts not collected within {} s", DOWNLOAD_TIMEOUT.as_secs()));
                Vec::new()
            }
            None => {
                self.log.line("artifacts not collected: in a hurry");
                Vec::new()
            }
        }
    }

    async fn run_hook(&self, environment: &Environment, hook: &Collect) {
        let run = Box::pin(run_hook(environment, hook));
        let problem = match self.within(Phase::Verifier, run).await {
            Ok(Ok(())) => return,
            Ok(Err(problem)) => problem,
            Err(failure) => format!("did not end: {failure}"),
        };
        self.log.line(format!("the command before collecting, {:?}, {problem}", hook.command));
    }

    /// Downloads the logs. Returns whether they arrived. A problem is written to the trial's log, and the trial
    /// continues.
    pub(crate) async fn download_logs(&self, environment: &Environment, logs: &LogDirs) -> bool {
        let download = tokio::time::timeout(DOWNLOAD_TIMEOUT, environment.download_logs(logs));
        let problem = match self.context.cancellation.unless_hurried(download).await {
            Some(Ok(Ok(_))) => return true,
            Some(Ok(Err(error))) => format!(": {}", chain(&error)),
            Some(Err(_)) => format!(" within {} s", DOWNLOAD_TIMEOUT.as_secs()),
            None => ": in a hurry".to_owned(),
        };
        self.log.line(format!("logs not collected{problem}"));
        false
    }
}

/// Runs a command of the task before artifacts are collected.
///
/// # Errors
/// Returns the problem as a predicate, to be written after the command's name.
pub(crate) async fn run_hook(environment: &Environment, hook: &Collect) -> Result<(), String> {
    let not_run = |error: EnvironmentError| format!("did not run: {}", chain(&error));
    let service = match hook.service.as_str() {
        MAIN_SERVICE => None,
        name => Some(environment.service(name).await.map_err(not_run)?),
    };
    let environment = service.as_ref().unwrap_or(environment);
    let exec = Exec {
        command: environment.instruction(&hook.command),
        user: hook.user.clone(),
        timeout: Duration::try_from_secs_f64(hook.timeout_sec).ok(),
        ..Exec::default()
    };
    let output = Box::pin(environment.exec(exec)).await.map_err(not_run)?;
    match output.exit_code {
        Some(0) => Ok(()),
        _ if output.timed_out => Err("ran out of time".to_owned()),
        code => Err(format!("ended with {code:?}: {}", output.last_words())),
    }
}
