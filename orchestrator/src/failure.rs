//! Why a trial failed: in which phase, under which of Harbor's names, and whether the agent is to blame.

mod exception_class;
mod timeouts;

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::common::plain::plain;
pub use exception_class::ExceptionClass;
pub use timeouts::{AGENT_SETUP_SEC, InvalidTimeout, PhaseLimit, TimeoutPolicy};

/// Why a trial failed. The first failure of a trial is the one that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFailure {
    /// What was under way.
    pub phase: Phase,
    /// What kind of failure.
    pub cause: Cause,
    /// What happened, with every underlying cause.
    pub message: String,
    /// The agent and its model ended up here by themselves, so a reward measures them. Decides the exit code of a job
    /// and the `valid` of a reward.
    pub is_agents_fault: bool,
    /// In which step; none where it is the whole trial's.
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
    /// The task's check of its environment is run until it passes.
    Healthcheck,
    /// The agent is made ready.
    AgentSetup,
    /// What a step brings is put into the environment.
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

/// Kinds of failure, by the names of the exceptions that Harbor records for them where it has one: Harbor's readers
/// classify a trial by that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The proxy's admin plane did not do what was asked. Ours: Harbor has no proxy.
    Proxy,
    /// The image could not be built or the environment not be started.
    EnvironmentStart,
    /// Building and starting took longer than the task's `environment.build_timeout_sec`.
    EnvironmentStartTimeout,
    /// The task's check of its environment went on failing.
    Healthcheck,
    /// Getting the agent ready took too long.
    AgentSetupTimeout,
    /// A step's `setup.sh` failed.
    StepSetup,
    /// The whole trial took longer than it may. Ours: Harbor has no such limit.
    TrialDeadline,
    /// The environment failed under the agent or the verifier.
    Environment,
    /// The agent worked longer than the task's `agent.timeout_sec`.
    AgentTimeout,
    /// The agent's command ended with another exit code than 0.
    NonZeroAgentExitCode,
    /// The conversation outgrew the model's context.
    ContextLengthExceeded,
    /// The model gave the agent no answer.
    ModelApi,
    /// An installed agent says that the conversation outgrew the model's context.
    ContextWindowExceeded,
    /// An installed agent says that its model did not answer.
    UnknownApi,
    /// The verifier gave no reward; the name says why.
    Verifier(&'static str),
    /// An exception of Harbor's, where Harbor ran the trial, that is none of the above.
    Harbor(ExceptionClass),
    /// The job was cancelled.
    Cancelled,
    /// A failure of rolltap itself or of this host.
    Internal,
}

impl Cause {
    /// The name under which Harbor's readers know the failure.
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
            Self::Cancelled => "CancelledError",
            Self::StepSetup | Self::Internal => "RuntimeError",
        }
    }

    /// The kind of failure that a trial's result names. One that is not known here keeps its name.
    fn named(name: &str) -> Self {
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
            Self::Cancelled,
            Self::Internal,
        ];
        let found = known.into_iter().find(|cause| cause.name() == name);
        found.unwrap_or_else(|| Self::Verifier(ExceptionClass::of(name).name()))
    }

    /// The cause of this class of Harbor's exceptions.
    pub fn of_harbor(class: &str) -> Self {
        match class {
            "AgentTimeoutError" => Self::AgentTimeout,
            "NonZeroAgentExitCodeError" => Self::NonZeroAgentExitCode,
            "CancelledError" => Self::Cancelled,
            class => Self::Harbor(ExceptionClass::of(class)),
        }
    }

    /// Whether the tests still run. Harbor 0.25 runs them after an agent that ran out of time or whose program failed (what
    /// that said of its model is a kind of the latter), and after no other failure.
    pub fn leaves_work_to_verify(self) -> bool {
        matches!(
            self,
            Self::AgentTimeout | Self::NonZeroAgentExitCode | Self::ContextWindowExceeded | Self::UnknownApi
        )
    }

    /// Whether nothing more is done in the trial but to save what there is.
    pub(crate) fn ends_the_trial(self) -> bool {
        matches!(self, Self::Cancelled | Self::TrialDeadline)
    }

    /// Whether such a failure, nothing else known, is the agent's own: a spent budget, or its own way out.
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
    /// A failure, with the blame that its cause implies. What only a terminal would understand of the message, such as
    /// the colours of a build's output, is left out: it goes into files and records.
    pub fn new(phase: Phase, cause: Cause, message: impl Into<String>) -> Self {
        let message = plain(&message.into());
        Self { phase, cause, message, is_agents_fault: cause.is_agents_fault(), step: None }
    }

    /// A failure with the whole chain of an error as its message.
    pub fn from_error(phase: Phase, cause: Cause, error: &dyn Error) -> Self {
        Self::new(phase, cause, chain(error))
    }

    /// The job was cancelled in this phase.
    pub fn cancelled(phase: Phase) -> Self {
        Self::new(phase, Cause::Cancelled, format!("the job was cancelled in phase {phase}"))
    }

    /// The trial's time was over in this phase.
    pub(crate) fn out_of_time(phase: Phase) -> Self {
        Self::new(phase, Cause::TrialDeadline, format!("the trial's time was over in phase {phase}"))
    }

    /// The same failure, known not to be the agent's, and why.
    pub fn not_the_agents(self, why: &str) -> Self {
        Self { message: format!("{}; {why}", self.message), is_agents_fault: false, ..self }
    }
}

/// An error and its sources in one line, each said once: some libraries repeat the source in their own words.
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
