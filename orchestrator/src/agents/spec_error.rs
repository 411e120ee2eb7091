//! Why an agent cannot be created.

use super::definition::DefinitionError;
use super::spec::names;
use crate::common::suggest::did_you_mean;

/// Why an agent cannot be created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentSpecError {
    /// No agent has this name.
    #[error(
        "unknown agent {name:?}{}; known agents: {}. An agent of your own is named by its file: -a path/to/agent.toml",
        did_you_mean(*.suggestion), names().collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// The name as given.
        name: String,
        /// The known name that is most similar, if one is similar enough.
        suggestion: Option<&'static str>,
    },
    /// The agent `command` has no command.
    #[error("agent \"command\" needs --agent-command, the shell command to run in each environment")]
    CommandMissing,
    /// The option belongs to another agent.
    #[error("{option} is for agent {wanted:?}, but the agent is {agent:?}")]
    OptionOfAnother {
        /// The flag.
        option: &'static str,
        /// The agent that has this flag.
        wanted: &'static str,
        /// The requested agent.
        agent: String,
    },
    /// The agent does not have the option, or the value is invalid.
    #[error("agent {agent:?}: {why}")]
    Option {
        /// The agent.
        agent: String,
        /// The problem and a remedy.
        why: String,
    },
    /// A definition file cannot be read.
    #[error("agent file {path} cannot be read: {why}")]
    File {
        /// The file.
        path: String,
        /// The error of the system.
        why: String,
    },
    /// A definition file is invalid.
    #[error("agent file {path} cannot be used: {source}")]
    Definition {
        /// The file.
        path: String,
        /// The reason.
        source: DefinitionError,
    },
}
