//! The failures of trials: the phase, Harbor's name for the cause, and whether the agent is to blame.

mod exception_class;
mod timeouts;

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::common::plain::plain;
use crate::environment::EnvironmentError;
pub use exception_class::ExceptionClass;
pub use timeouts::{AGENT_SETUP_SEC, InvalidTimeout, PhaseLimit, TimeoutPolicy};

/// Why a trial failed. A trial records only its first failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFailure {
    /// The phase in which the failure occurred.
    pub phase: Phase,
    /// The kind of failure.
    pub cause: Cause,
    /// The error and every underlying cause.
    pub message: String,
    /// Whether the agent or its model caused the failure, so that a reward measures them. Decides the exit code of a
    /// job and the `valid` of a reward.
    pub is_agents_fault: bool,
    /// The name of the step that failed. `None` if the failure concerns the whole trial.
    pub step: Option<String>,
}

/// The phases of a trial, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The proxy opens the trial and gives it a key.
    Open,
    /// The image is built and the environment started.
    EnvironmentSetup,
    /// The task's health check runs until it passes.
    Healthcheck,
    /// The agent is installed and prepared.
    AgentSetup,
    /// The files of a step are copied into the environment.
    StepSetup,
    /// The agent works.
    Agent,
    /// The proxy seals the trial.
    Seal,
    /// The verifier runs the task's tests.
    Verifier,
    /// The proxy joins the reward.
    Reward,
}

/// Kinds of failure. Each has the name of Harbor's exception for it, if there is one, because Harbor's readers classify
/// a trial by that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The proxy's admin plane did not fulfil a request. A name of rolltap: Harbor has no proxy.
    Proxy,
    /// The image could not be built, or the environment could not be started.
    EnvironmentStart,
    /// Building and starting took longer than the task's `environment.build_timeout_sec`.
    EnvironmentStartTimeout,
    /// The task's health check failed until its retries were spent.
    Healthcheck,
    /// The preparation of the agent took too long.
    AgentSetupTimeout,
    /// A step's `setup.sh` failed.
    StepSetup,
    /// The whole trial exceeded its deadline. A name of rolltap: Harbor has no such limit.
    TrialDeadline,
    /// The environment failed while the agent or the verifier ran.
    Environment,
    /// The agent worked longer than the task's `agent.timeout_sec`.
    AgentTimeout,
    /// The agent's command exited with a code other than 0.
    NonZeroAgentExitCode,
    /// The conversation exceeded the model's context window.
    ContextLengthExceeded,
    /// The model did not answer the agent.
    ModelApi,
    /// An installed agent reported that the conversation exceeded the model's context window.
    ContextWindowExceeded,
    /// An installed agent reported that its model did not answer.
    UnknownApi,
    /// The verifier gave no reward. The name states the reason.
    Verifier(&'static str),
    /// Another exception of Harbor, from a trial that Harbor ran.
    Harbor(ExceptionClass),
    /// The worker of the trial fell silent, or gave the trial up. A name of rolltap: Harbor has no workers.
    WorkerLost,
    /// The job was cancelled.
    Cancelled,
    /// rolltap itself or this host failed.
    Internal,
}

impl Cause {
    /// Returns the name by which Harbor's readers know the failure.
    pub fn name(self) -> &'static str {
        match self {
            Self::Proxy => "ProxyError",
            Self::EnvironmentStart => "SandboxBuildFailedError",
            Self::EnvironmentStartTimeout => "EnvironmentStartTimeoutError",
            Self::Healthcheck => "HealthcheckError",
            Self::AgentSetupTimeout => "AgentSetupTimeoutError",
            Self::TrialDeadline => "TrialDeadlineError",
            Self::Environment => "RuntimeRequestError",
            Self::AgentTimeout => "AgentTimeoutError",
            Self::NonZeroAgentExitCode => "NonZeroAgentExitCodeError",
            Self::ContextLengthExceeded => "ContextLengthExceededError",
            Self::ModelApi => "ApiError",
            Self::ContextWindowExceeded => "ContextWindowExceededError",
            Self::UnknownApi => "UnknownApiError",
            Self::Verifier(name) => name,
            Self::Harbor(class) => class.name(),
            Self::WorkerLost => "WorkerLostError",
            Self::Cancelled => "CancelledError",
            Self::StepSetup | Self::Internal => "RuntimeError",
        }
    }

    /// Returns the cause with this name in a trial's result. Keeps an unknown name unchanged, if it can be a class
    /// name.
    fn named(name: &str) -> Self {
        // `StepSetup` has the same name as `Internal`, so the name alone gives `Internal`.
        let known = [
            Self::Proxy,
            Self::EnvironmentStart,
            Self::EnvironmentStartTimeout,
            Self::Healthcheck,
            Self::AgentSetupTimeout,
            Self::TrialDeadline,
            Self::Environment,
            Self::AgentTimeout,
            Self::NonZeroAgentExitCode,
            Self::ContextLengthExceeded,
            Self::ModelApi,
            Self::ContextWindowExceeded,
            Self::UnknownApi,
            Self::WorkerLost,
            Self::Cancelled,
            Self::Internal,
        ];
        let found = known.into_iter().find(|cause| cause.name() == name);
        // The verifier's causes have no fixed list of names, so every other name counts as a verifier's cause.
        found.unwrap_or_else(|| Self::Verifier(ExceptionClass::of(name).name()))
    }

    /// Returns the cause for this class of Harbor's exceptions.
    pub fn of_harbor(class: &str) -> Self {
        match class {
            "AgentTimeoutError" => Self::AgentTimeout,
            "NonZeroAgentExitCodeError" => Self::NonZeroAgentExitCode,
            "CancelledError" => Self::Cancelled,
            class => Self::Harbor(ExceptionClass::of(class)),
        }
    }

    /// Whether the tests still run after this failure. Harbor 0.25 runs them after an agent timeout and after a failed
    /// agent program, and after no other failure. The two causes that an installed agent reports are kinds of the
    /// latter.
    pub fn leaves_work_to_verify(self) -> bool {
        matches!(
            self,
            Self::AgentTimeout | Self::NonZeroAgentExitCode | Self::ContextWindowExceeded | Self::UnknownApi
        )
    }

    /// Whether the trial only saves its data after this failure, and skips its other phases.
    pub(crate) fn ends_the_trial(self) -> bool {
        matches!(self, Self::Cancelled | Self::TrialDeadline)
    }

    /// Whether this cause, if nothing else is known, is the agent's own fault: a spent budget, or an exit of its own.
    fn is_agents_fault(self) -> bool {
        matches!(
            self,
            Self::AgentTimeout
                | Self::NonZeroAgentExitCode
                | Self::ContextLengthExceeded
                | Self::ContextWindowExceeded
        )
    }
}

impl TrialFailure {
    /// Makes a failure with the blame that its cause implies. Removes escape sequences, such as the colours of a
    /// build's output, because the message goes into files and records.
    pub fn new(phase: Phase, cause: Cause, message: impl Into<String>) -> Self {
        let message = plain(&message.into());
        Self { phase, cause, message, is_agents_fault: cause.is_agents_fault(), step: None }
    }

    /// Makes a failure with the whole chain of an error as its message.
    pub fn from_error(phase: Phase, cause: Cause, error: &dyn Error) -> Self {
        Self::new(phase, cause, chain(error))
    }

    /// Makes the failure of a trial whose job was cancelled in this phase.
    pub fn cancelled(phase: Phase) -> Self {
        Self::new(phase, Cause::Cancelled, format!("the job was cancelled in phase {phase}"))
    }

    /// Makes the failure of a trial whose deadline passed in this phase.
    pub(crate) fn out_of_time(phase: Phase) -> Self {
        Self::new(phase, Cause::TrialDeadline, format!("the trial's time was over in phase {phase}"))
    }

    /// Returns the same failure with the reason `why` in its message, and without the agent's blame.
    pub fn not_the_agents(self, why: &str) -> Self {
        Self { message: format!("{}; {why}", self.message), is_agents_fault: false, ..self }
    }
}

/// Makes the failure of a trial whose environment failed in this phase.
pub(crate) fn environment_failure(phase: Phase, error: &EnvironmentError) -> TrialFailure {
    TrialFailure::from_error(phase, Cause::Environment, error)
}

/// Returns an error and its sources in one line. Skips a source whose text is already in the line, since some libraries
/// repeat their source.
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        source = error.source();
    }
    line
}

impl fmt::Display for TrialFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in phase {}: {}", self.cause, self.phase, self.message)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::named(&String::deserialize(deserializer)?))
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "open",
            Self::EnvironmentSetup => "environment_setup",
            Self::Healthcheck => "healthcheck",
            Self::AgentSetup => "agent_setup",
            Self::StepSetup => "step_setup",
            Self::Agent => "agent",
            Self::Seal => "seal",
            Self::Verifier => "verifier",
            Self::Reward => "reward",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the door")]
    struct Door(#[source] std::io::Error);

    #[test]
    fn the_message_holds_the_whole_chain() {
        let error = Door(std::io::Error::other("no key"));
        let failure = TrialFailure::from_error(Phase::Open, Cause::Internal, &error);
        assert_eq!(failure.message, "cannot open the door: no key");
        assert_eq!(failure.to_string(), "RuntimeError in phase open: cannot open the door: no key");
    }

    #[test]
    fn colours_of_what_a_build_prints_are_no_part_of_the_message() {
        let failure =
            TrialFailure::new(Phase::EnvironmentSetup, Cause::EnvironmentStart, "\u{1b}[91mno\u{1b}[0m");
        assert_eq!(failure.message, "no");
    }

    #[test]
    fn a_spent_budget_is_the_agents_and_a_broken_sandbox_is_not() {
        let blame = |cause| TrialFailure::new(Phase::Agent, cause, "x").is_agents_fault;
        assert!(blame(Cause::AgentTimeout));
        assert!(blame(Cause::ContextLengthExceeded));
        assert!(!blame(Cause::Environment));
        assert!(!blame(Cause::Cancelled));
        assert!(!blame(Cause::ModelApi));
        assert!(!blame(Cause::Verifier("RewardFileNotFoundError")));
    }

    #[test]
    fn a_failure_is_read_as_it_was_written() {
        for cause in [Cause::AgentTimeout, Cause::Internal, Cause::Verifier("RewardFileEmptyError")] {
            let failure = TrialFailure::new(Phase::Verifier, cause, "x");
            let written = serde_json::to_string(&failure).unwrap();
            assert_eq!(serde_json::from_str::<TrialFailure>(&written).unwrap(), failure);
        }
    }

    #[test]
    fn knowledge_of_failed_calls_takes_the_blame_off_the_agent() {
        let failure = TrialFailure::new(Phase::Agent, Cause::NonZeroAgentExitCode, "exit code 1");
        let failure = failure.not_the_agents("2 of its 3 model calls failed");
        assert!(!failure.is_agents_fault);
        assert_eq!(failure.message, "exit code 1; 2 of its 3 model calls failed");
    }
}
