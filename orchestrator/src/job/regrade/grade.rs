//! Runs the tests of one trial again.

use super::choice::{Work, steps};
use super::recorded::Recorded;
use crate::common::cancellation::Cancellation;
use crate::environment::{Environment, EnvironmentError, Host, TrialLabel};
use crate::failure::{Cause, Phase, TimeoutPolicy, TrialFailure, chain};
use crate::job_dir::{JobDir, Log, TrialDir};
use crate::task::{RewardStrategy, SeparateVerifier, Task};
use crate::trial::runner::start::started_within;
use crate::trial::runner::steps::{overall, truncated};
use crate::trial::{DOWNLOAD_TIMEOUT, Round, StepOutcome, TrialExtras, stop_in_time, verdict_in_words};
use crate::verify::{self, Artifacts, Rewards, VerificationContext, empty_for_tests};

/// The parts that all verifications of a job share.
pub(super) struct Shared<'a> {
    pub(super) job: &'a JobDir,
    pub(super) host: &'a Host,
    pub(super) timeouts: TimeoutPolicy,
    pub(super) extras: &'a TrialExtras,
    pub(super) cancellation: &'a Cancellation,
}

/// The verification of one trial.
pub(super) struct Grading<'a> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) trial: &'a Recorded,
    pub(super) task: &'a Task,
    /// The directory of the trial in the version.
    pub(super) dir: &'a TrialDir,
    pub(super) log: &'a Log,
}

/// The result of the tests of one trial.
pub(super) struct Verdict {
    pub(super) rewards: Rewards,
    /// The failure of the tests. `None` if they gave a result.
    pub(super) failure: Option<TrialFailure>,
}

impl Grading<'_> {
    /// Runs the tests on this work.
    ///
    /// # Errors
    /// Returns the failure of the environment or of this host, which is no result of the agent's work.
    pub(super) async fn run(&self, work: &Work) -> Result<Verdict, TrialFailure> {
        let verdict = match work {
            Work::Artifacts if self.task.steps.is_empty() => verdict(
                Box::pin(self.on_artifacts(self.task, &self.shared.job.trial(&self.trial.name), self.dir))
                    .await,
            ),
            Work::Artifacts => Box::pin(self.on_steps()).await,
            Work::Container(id) => verdict(Box::pin(self.on_container(id)).await),
        };
        let verdict = verdict?;
        verdict.rewards.truncated.iter().for_each(|note| self.log.line(note));
        self.log.line(match &verdict.failure {
            Some(failure) => format!("failed: {failure}"),
            None => verdict_in_words(&verdict.rewards.rewards),
        });
        Ok(verdict)
    }

    /// Runs the tests of a task or step in their separate environment, on the artifacts in this directory.
    async fn on_artifacts(
        &self,
        task: &Task,
        from: &TrialDir,
        to: &TrialDir,
    ) -> Result<Rewards, TrialFailure> {
        let Some(separate) = &task.separate_verifier else {
            return Err(TrialFailure::new(Phase::Verifier, Cause::Internal, "the tests have no environment"));
        };
        let artifacts = Artifacts::new(&task.config.artifacts, from.artifacts());
        verify::verify_apart(self, separate, task, &artifacts, &to.logs()).await
    }

    async fn on_steps(&self) -> Result<Verdict, TrialFailure> {
        let internal = |problem: String| TrialFailure::new(Phase::Verifier, Cause::Internal, problem);
        let (mut outcomes, mut failure) = (Vec::new(), None);
        let from = self.shared.job.trial(&self.trial.name);
        for step in steps(self.trial, self.task).map_err(internal)? {
            self.log.line(format!("step {}", step.name));
            let to = self.dir.create_step(&step.name).map_err(|error| internal(error.to_string()))?;
            let ended = verdict(Box::pin(self.on_artifacts(&step.task, &from.step(&step.name), &to)).await)?;
            let round = match ended.failure {
                None => Round { verdict: Some(ended.rewards), ..Round::default() },
                Some(of_step) => {
                    failure.get_or_insert(TrialFailure { step: Some(step.name.clone()), ..of_step });
                    Round::default()
                }
            };
            outcomes.push(StepOutcome { name: step.name.clone(), round });
        }
        let strategy: RewardStrategy = self.task.config.multi_step_reward_strategy.unwrap_or_default();
        let rewards = overall(&outcomes, strategy).unwrap_or_default();
        Ok(Verdict { rewards: Rewards { truncated: truncated(&outcomes), ..rewards }, failure })
    }

    /// Runs the tests in a copy of the container in which the agent worked. The container itself does not change.
    async fn on_container(&self, id: &str) -> Result<Rewards, TrialFailure> {
        let host = self.shared.host;
        let failed = |error: EnvironmentError| {
            TrialFailure::from_error(Phase::Verifier, Cause::EnvironmentStart, &error)
        };
        let copied = self.bounded(host.prepare_kept(id, self.task)).await?.map_err(failed)?;
        let prepared = copied.clone().mounting(self.shared.extras.mounts.clone());
        let label = TrialLabel::new(self.label());
        let started = Box::pin(self.start(host.start(&prepared, self.task, &label))).await;
        let rewards = match started {
            Ok(environment) => {
                let rewards = Box::pin(self.tests_inside(&environment)).await;
                self.stop(environment).await;
                rewards
            }
            Err(failure) => Err(failure),
        };
        if let Err(error) = host.discard(copied).await {
            self.log.line(format!("the copy of the container is not removed: {}", chain(&error)));
        }
        rewards
    }

    async fn tests_inside(&self, environment: &Environment) -> Result<Rewards, TrialFailure> {
        // Files of the first tests must not count as those of these tests.
        empty_for_tests(environment).await?;
        verify::run_tests(self, environment, self.task, &self.dir.logs()).await
    }

    fn label(&self) -> String {
        format!("{}-regrade", self.trial.name)
    }

    async fn start(
        &self,
        start: impl Future<Output = Result<Environment, EnvironmentError>>,
    ) -> Result<Environment, TrialFailure> {
        let limit = self.shared.timeouts.environment_build(self.task.config.environment.build_timeout_sec);
        self.bounded(started_within(limit, Phase::Verifier, start)).await?
    }

    async fn stop(&self, environment: Environment) {
        if let Err(problem) = stop_in_time(environment).await {
            self.log.line(problem);
        }
    }
}

/// Separates a result of the tests, which is final, from a failure that another run may not have.
fn verdict(ended: Result<Rewards, TrialFailure>) -> Result<Verdict, TrialFailure> {
    match ended {
        Ok(rewards) => Ok(Verdict { rewards, failure: None }),
        Err(failure) if matches!(failure.cause, Cause::Verifier(name) if name != "RuntimeError") => {
            Ok(Verdict { rewards: Rewards::default(), failure: Some(failure) })
        }
        Err(failure) => Err(failure),
    }
}

impl VerificationContext for Grading<'_> {
    type Separate = Box<Environment>;

    fn timeouts(&self) -> &TimeoutPolicy {
        &self.shared.timeouts
    }

    fn log_line(&self, line: String) {
        self.log.line(line);
    }

    fn time_is_over(&self) -> Option<TrialFailure> {
        let is_stopped = self.shared.cancellation.stop.is_cancelled();
        is_stopped.then(|| TrialFailure::cancelled(Phase::Verifier))
    }

    async fn bounded<T>(&self, work: impl Future<Output = T>) -> Result<T, TrialFailure> {
        let done = self.shared.cancellation.unless_stopped(work).await;
        done.ok_or_else(|| TrialFailure::cancelled(Phase::Verifier))
    }

    async fn download<T>(&self, subject: &str, work: impl Future<Output = T>) -> Option<T> {
        let done = tokio::time::timeout(DOWNLOAD_TIMEOUT, work).await;
        done.inspect_err(|_| {
            self.log.line(format!("{subject} not collected within {} s", DOWNLOAD_TIMEOUT.as_secs()))
        })
        .ok()
    }

    async fn start_separate(&self, separate: &SeparateVerifier) -> Result<Box<Environment>, TrialFailure> {
        let task = &separate.environment;
        let start = async {
            let prepared = self.shared.host.prepare(task).await?;
            self.shared.host.start(&prepared, task, &TrialLabel::new(self.label())).await
        };
        Box::pin(self.start(start)).await.map(Box::new)
    }

    async fn stop_separate(&self, environment: Box<Environment>) {
        self.stop(*environment).await;
    }
}
