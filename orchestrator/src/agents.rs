//! Who works at the task: the built-in agents and the installed ones, and how each is let loose in an environment.

pub mod catalog;
mod command;
pub mod definition;
mod handover;
pub(crate) mod harbor_agent;
mod installed;
mod instruction;
mod invocation;
mod layer;
mod oracle;
pub(crate) mod skill;
mod spec;
mod spec_error;
pub(crate) mod terminal;
mod terminus_2;

use std::path::Path;
use std::time::Duration;

use rolltap_agent::terminal::Terminal;
use rolltap_proxy::api::{BaseUrls, TrialOpened};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub use harbor_agent::HarborAgent;
pub use installed::InstalledAgent;
pub use layer::{LayerError, is_installed};
pub use skill::{Skill, SkillError};
pub use spec::{AgentOptions, AgentSpec, BUILT_IN};
pub use spec_error::AgentSpecError;
pub use terminal::{OPTIONS as TERMINAL_OPTIONS, TerminalOptions};
pub use terminus_2::Terminus2;

use crate::environment::{Environment, EnvironmentError, Share};
use crate::failure::{Cause, Phase, TrialFailure};
use crate::task::{McpServer, Task};

impl AgentSpec {
    /// Installs the agent's programs on this host, where it is one that is installed and they are not there yet.
    ///
    /// # Errors
    /// They cannot be had; the error has the last lines of what the installer wrote.
    pub async fn install(&mut self) -> Result<(), LayerError> {
        match self {
            Self::Installed(agent) => agent.install().await,
            Self::Terminus2(agent) => agent.find().await,
            _ => Ok(()),
        }
    }

    /// What its environments must see of this host.
    pub(crate) fn shares(&self) -> Vec<Share> {
        match self {
            Self::Installed(agent) => agent.shares(),
            _ => Vec::new(),
        }
    }

    /// Gets ready before the agent's time begins, within the assignment's.
    pub(crate) async fn set_up(&self, assignment: &Assignment<'_>) -> Result<Ready, TrialFailure> {
        match self {
            Self::Installed(agent) => agent.set_up(assignment).await,
            Self::Terminal(options) => terminal::set_up(options, assignment).await,
            // They bring all they need.
            Self::Oracle | Self::Nop | Self::Command { .. } | Self::Terminus2(_) => Ok(Ready::default()),
            Self::Harbor(agent) => Err(not_here(agent)),
        }
    }

    /// Works at the task until done, out of time, or cancelled. Logs go to [`Assignment::logs`].
    pub(crate) async fn run(&self, assignment: Assignment<'_>, ready: Ready) -> AgentOutcome {
        match self {
            Self::Oracle => oracle::run(&assignment).await,
            Self::Nop => AgentOutcome::default(),
            Self::Command { command, env } => command::run(command, env, &assignment).await,
            Self::Terminal(options) => terminal::run(options, &assignment).await,
            Self::Installed(agent) => agent.run(&assignment, ready).await,
            Self::Terminus2(agent) => agent.run(&assignment).await,
            Self::Harbor(agent) => not_here(agent).into(),
        }
    }
}

/// Jobs refuse this before anything starts.
fn not_here(agent: &HarborAgent) -> TrialFailure {
    let why = format!("agent {:?} is harbor's and works in environment harbor alone", agent.name);
    TrialFailure::new(Phase::AgentSetup, Cause::Internal, why)
}

/// One trial as its agent sees it.
pub(crate) struct Assignment<'a> {
    /// What to do.
    pub(crate) task: &'a Task,
    /// Where to do it.
    pub(crate) environment: &'a Environment,
    /// Where its model is, and the key.
    pub(crate) trial: &'a TrialOpened,
    /// Where its model is, as seen from inside: for what runs there.
    pub(crate) urls_inside: &'a BaseUrls,
    /// Which model.
    pub(crate) model: Option<&'a str>,
    /// The task's MCP servers.
    pub(crate) mcp_servers: &'a [McpServer],
    /// Where the task's skills are, inside.
    pub(crate) skills_dir: Option<&'a str>,
    /// How long it has; none for as long as it takes.
    pub(crate) timeout: Option<Duration>,
    /// The trial's `agent/` folder on this host.
    pub(crate) logs: &'a Path,
    /// The job is being cancelled.
    pub(crate) cancel: &'a CancellationToken,
}

/// What an agent found out when it got ready.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// The version that its program says it has.
    version: Option<String>,
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
