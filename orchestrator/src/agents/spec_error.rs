//! Why no agent can be made of what was asked for.

use super::definition::DefinitionError;
use super::spec::names;
use crate::common::suggest::did_you_mean;

/// Why no agent can be made of what was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentSpecError {
    /// No such agent.
    #[error(
        "unknown agent {name:?}{}; known agents: {}. An agent of your own is named by its file: -a path/to/agent.toml",
        did_you_mean(*.suggestion), names().collect::<Vec<_>>().join(", ")
    )]
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
    /// An option of the agent's own that it does not have, or that may not be so.
    #[error("agent {agent:?}: {why}")]
    Option {
        /// The agent.
        agent: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A user's own file that cannot be read.
    #[error("agent file {path} cannot be read: {why}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        why: String,
    },
    /// A user's own file that says nothing usable.
    #[error("agent file {path} cannot be used: {source}")]
    Definition {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: DefinitionError,
    },
}
