//! The built-in and the installed agents, and how each works in an environment.

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
    /// Installs the agent's programs on this host, if it is an installed agent and they do not exist yet.
    ///
    /// # Errors
    /// Fails if the programs cannot be installed. The error has the last lines of the installer's output.
    pub async fn install(&mut self) -> Result<(), LayerError> {
        match self {
            Self::Installed(agent) => agent.install().await,
            Self::Terminus2(agent) => agent.find().await,
            _ => Ok(()),
        }
    }

    /// Returns the directories of this host that the agent's environments must see.
    pub(crate) fn shares(&self) -> Vec<Share> {
        match self {
            Self::Installed(agent) => agent.shares(),
            _ => Vec::new(),
        }
    }

    /// Sets the agent up before its time begins, within the assignment's time limit.
    pub(crate) async fn set_up(&self, assignment: &Assignment<'_>) -> Result<Ready, TrialFailure> {
        match self {
            Self::Installed(agent) => agent.set_up(assignment).await,
            Self::Terminal(options) => terminal::set_up(options, assignment).await,
            // These agents need no setup.
            Self::Oracle | Self::Nop | Self::Command { .. } | Self::Terminus2(_) => Ok(Ready::default()),
            Self::Harbor(agent) => Err(not_here(agent)),
        }
    }

    /// Works at the task until the agent ends, its time is over, or the job is cancelled. Logs go to
    /// [`Assignment::logs`].
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

/// Returns a failure. A job rejects this combination before it starts.
fn not_here(agent: &HarborAgent) -> TrialFailure {
    let why = format!("agent {:?} is harbor's and works in environment harbor alone", agent.name);
    TrialFailure::new(Phase::AgentSetup, Cause::Internal, why)
}

/// A trial as its agent sees it.
pub(crate) struct Assignment<'a> {
    /// The task.
    pub(crate) task: &'a Task,
    /// The environment.
    pub(crate) environment: &'a Environment,
    /// The trial at the proxy, with the model's URLs for this host and the key.
    pub(crate) trial: &'a TrialOpened,
    /// The model's URLs for programs inside the environment.
    pub(crate) urls_inside: &'a BaseUrls,
    /// The model's name.
    pub(crate) model: Option<&'a str>,
    /// The task's MCP servers.
    pub(crate) mcp_servers: &'a [McpServer],
    /// The directory of the task's skills inside the environment.
    pub(crate) skills_dir: Option<&'a str>,
    /// The agent's time limit. `None` for no limit.
    pub(crate) timeout: Option<Duration>,
    /// The trial's `agent/` folder on this host.
    pub(crate) logs: &'a Path,
    /// Cancelled when the agent must end before its time limit, as when the job stops.
    pub(crate) cancel: &'a CancellationToken,
}

/// The values that an agent's setup found.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// The version that the agent's program reports.
    version: Option<String>,
}

/// How an agent's work ended.
#[derive(Default)]
pub(crate) struct AgentOutcome {
    /// `None` if the agent ended by itself and without an error.
    pub(crate) failure: Option<TrialFailure>,
    /// Metadata from the agent about its run, for the trial's result.
    pub(crate) metadata: Map<String, Value>,
    /// The agent's terminal. Dropping it ends the programs that the agent left running there.
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
