//! Who works at the task: the built-in agents, and how each is let loose in an environment.

mod command;
mod oracle;
mod terminal;

use std::path::Path;
use std::time::Duration;

use rolltap_agent::terminal::Terminal;
use rolltap_proxy::api::TrialOpened;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::environment::{Environment, EnvironmentError};
use crate::nearest::nearest;
use crate::task::Task;
use crate::trial::{Cause, Phase, TrialFailure};

/// The names that `-a` takes.
pub const NAMES: [&str; 4] = ["oracle", "nop", "command", "terminal"];

/// An agent with its settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum AgentSpec {
    /// Runs the task's own solution: shows that the task can be solved.
    Oracle,
    /// Does nothing: shows that the task is not solved from the start.
    Nop,
    /// Any program, run by a shell inside the environment.
    Command {
        /// The shell command. The base URLs, the key, the model and the instruction are in its environment variables.
        command: String,
    },
    /// rolltap's own agent: reads a terminal's screen and types, by Terminus-2's rules.
    Terminal {
        /// Turns after which it stops; none for the agent's own default.
        max_turns: Option<u32>,
    },
}

/// What the command line says about agents, whichever one it names.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    /// `--agent-command`
    pub command: Option<String>,
    /// `--max-turns`
    pub max_turns: Option<u32>,
}

/// Why no agent can be made of what was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentSpecError {
    /// No such agent.
    #[error("unknown agent {name:?}{}; known agents: {}", did_you_mean(.suggestion), NAMES.join(", "))]
    Unknown {
        /// As given.
        name: String,
        /// The nearest known name, if one is near.
        suggestion: Option<&'static str>,
    },
    /// `command` without a command.
    #[error("agent \"command\" needs --agent-command, the shell command to run in each environment")]
    CommandMissing,
    /// An option that belongs to another agent.
    #[error("{option} is for agent {wanted:?}, but the agent is {agent:?}")]
    OptionOfAnother {
        /// The flag.
        option: &'static str,
        /// Whose flag it is.
        wanted: &'static str,
        /// The agent asked for.
        agent: String,
    },
}

fn did_you_mean(suggestion: &Option<&str>) -> String {
    suggestion.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default()
}

impl AgentSpec {
    /// The agent of this name with these options.
    ///
    /// # Errors
    /// An unknown name, a missing option, or an option that the agent would ignore.
    pub fn new(name: &str, options: AgentOptions) -> Result<Self, AgentSpecError> {
        let of_another =
            |option, wanted| AgentSpecError::OptionOfAnother { option, wanted, agent: name.to_owned() };
        let AgentOptions { command, max_turns } = options;
        if !NAMES.contains(&name) {
            return Err(AgentSpecError::Unknown { name: name.to_owned(), suggestion: nearest(name, NAMES) });
        }
        if command.is_some() && name != "command" {
            return Err(of_another("--agent-command", "command"));
        }
        if max_turns.is_some() && name != "terminal" {
            return Err(of_another("--max-turns", "terminal"));
        }
        Ok(match name {
            "oracle" => Self::Oracle,
            "nop" => Self::Nop,
            "command" => Self::Command { command: command.ok_or(AgentSpecError::CommandMissing)? },
            _ => Self::Terminal { max_turns },
        })
    }

    /// As in [`NAMES`].
    pub fn name(&self) -> &str {
        match self {
            Self::Oracle => "oracle",
            Self::Nop => "nop",
            Self::Command { .. } => "command",
            Self::Terminal { .. } => "terminal",
        }
    }

    /// Whether a trial without a reachable model is pointless.
    pub fn calls_model(&self) -> bool {
        matches!(self, Self::Command { .. } | Self::Terminal { .. })
    }

    /// Works at the task until done, out of time, or cancelled. Logs go to [`Assignment::logs`].
    pub(crate) async fn run(&self, assignment: Assignment<'_>) -> AgentOutcome {
        match self {
            Self::Oracle => oracle::run(&assignment).await,
            Self::Nop => AgentOutcome::default(),
            Self::Command { command } => command::run(command, &assignment).await,
            Self::Terminal { max_turns } => terminal::run(*max_turns, &assignment).await,
        }
    }
}

/// One trial as its agent sees it.
pub(crate) struct Assignment<'a> {
    /// What to do.
    pub(crate) task: &'a Task,
    /// Where to do it.
    pub(crate) environment: &'a Environment,
    /// Where its model is, and the key.
    pub(crate) trial: &'a TrialOpened,
    /// Which model.
    pub(crate) model: Option<&'a str>,
    /// How long it has; none for as long as it takes.
    pub(crate) timeout: Option<Duration>,
    /// The trial's `agent/` folder on this host.
    pub(crate) logs: &'a Path,
    /// The job is being cancelled.
    pub(crate) cancel: &'a CancellationToken,
}

/// How an agent's work ended.
#[derive(Default)]
pub(crate) struct AgentOutcome {
    /// None if it ended by itself and well.
    pub(crate) failure: Option<TrialFailure>,
    /// What the agent says about its own run, for the trial's result.
    pub(crate) metadata: Map<String, Value>,
    /// Where the agent sat. Dropping it hangs up on what the agent left running there.
    pub(crate) terminal: Option<Terminal>,
}

impl AgentOutcome {
    fn failed(cause: Cause, message: impl Into<String>) -> Self {
        Self::from(TrialFailure::new(Phase::Agent, cause, message))
    }

    fn timed_out(assignment: &Assignment<'_>) -> Self {
        let seconds = assignment.timeout.unwrap_or_default().as_secs_f64();
        Self::failed(Cause::AgentTimeout, format!("the agent was still at work after {seconds} s"))
    }
}

impl From<TrialFailure> for AgentOutcome {
    fn from(failure: TrialFailure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }
}

impl From<EnvironmentError> for AgentOutcome {
    fn from(error: EnvironmentError) -> Self {
        TrialFailure::from_error(Phase::Agent, Cause::Environment, &error).into()
    }
}

impl From<std::io::Error> for AgentOutcome {
    fn from(error: std::io::Error) -> Self {
        TrialFailure::from_error(Phase::Agent, Cause::Internal, &error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_agent_is_told_the_known_ones_and_the_nearest() {
        let error = AgentSpec::new("terminl", AgentOptions::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown agent \"terminl\" (did you mean \"terminal\"?); known agents: oracle, nop, command, terminal"
        );
        let error = AgentSpec::new("claude-code", AgentOptions::default()).unwrap_err();
        assert!(matches!(error, AgentSpecError::Unknown { suggestion: None, .. }), "{error}");
    }

    #[test]
    fn options_of_another_agent_are_refused_rather_than_ignored() {
        let options = AgentOptions { command: Some("true".into()), max_turns: None };
        let error = AgentSpec::new("oracle", options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--agent-command is for agent \"command\", but the agent is \"oracle\""
        );
        let options = AgentOptions { command: Some("true".into()), max_turns: Some(3) };
        assert!(AgentSpec::new("command", options).is_err());
        assert_eq!(AgentSpec::new("command", AgentOptions::default()), Err(AgentSpecError::CommandMissing));
    }

    #[test]
    fn every_name_makes_the_agent_of_that_name() {
        for name in NAMES {
            let command = (name == "command").then(|| "true".to_owned());
            let agent = AgentSpec::new(name, AgentOptions { command, max_turns: None }).unwrap();
            assert_eq!(agent.name(), name);
        }
    }
}
