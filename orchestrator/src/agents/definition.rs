//! An agent as a file tells it: how it is installed, how it is run, and how it learns where its model is.
//!
//! The agents of [`catalog`](super::catalog) are such files, and a user may write one (`-a path/to/agent.toml`);
//! `docs/how-to/declare-an-agent.md` has the format. Nothing in it is a program but shell commands, which run inside the environment (or,
//! for `kind = "script"`, once on this host).

mod content;
mod mcp;
mod options;
mod parse;
mod template;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use content::FileContent;
pub(crate) use content::FileText;
pub use mcp::McpHandover;
pub(crate) use mcp::in_words;
pub(crate) use options::Chosen;
pub(super) use options::must_be_known;
pub use parse::DefinitionError;
pub(crate) use parse::{VERSION_OPTION, check_version};
pub(crate) use template::Values;
pub use template::{PLACES, Template};

/// An agent, declared.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// What `-a` takes: lower-case letters, digits and `-`.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Which API it calls its model by.
    pub dialect: Dialect,
    /// How it comes onto this machine.
    #[serde(default)]
    pub install: Install,
    /// What is done in each environment before the agent's time begins.
    #[serde(default)]
    pub setup: Setup,
    /// How it works at a task.
    pub run: Run,
    /// Environment variables of the agent.
    #[serde(default)]
    pub env: BTreeMap<String, Template>,
    /// Files that are there before it starts.
    #[serde(default)]
    pub files: Vec<ConfigFile>,
    /// How it is told of MCP servers; none if it takes none.
    pub mcp: Option<Mcp>,
    /// The directory where it looks for skills; none if it takes none.
    pub skills: Option<Template>,
    /// What `--agent-kwarg` takes besides `version`.
    #[serde(default)]
    pub options: BTreeMap<String, AgentOption>,
    /// What its output says of how it ended, the first that fits.
    #[serde(default)]
    pub outcome: Vec<OutcomeRule>,
}

/// The API that an agent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Gemini's generateContent.
    Gemini,
}

/// How an agent is installed: once per version, into a directory that its trials share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Install {
    /// Not at all: its program is in the image already.
    #[default]
    Image,
    /// From the npm registry, by this host's `npm`, without install scripts.
    Npm {
        /// The package.
        package: String,
        /// Its version, if `--agent-kwarg version=` says no other.
        version: String,
        /// The major version of Node.js that runs it, which comes with it; none for a program of its own.
        node: Option<u32>,
        /// The C library that its programs need.
        #[serde(default)]
        libc: Libc,
    },
    /// From PyPI, into a copy of a Python of this host.
    Pypi {
        /// The package.
        package: String,
        /// Its version, if `--agent-kwarg version=` says no other.
        version: String,
        /// Minor versions of Python 3 that it runs on, the best first.
        python: Vec<u32>,
        /// Further requirements, as pip takes them.
        #[serde(default)]
        with: Vec<String>,
    },
    /// By a shell script on this host that puts everything below `$ROLLTAP_LAYER`.
    Script {
        /// Run by `bash -eu`.
        script: String,
        /// In the script's `$ROLLTAP_VERSION`, if `--agent-kwarg version=` says no other.
        version: String,
        /// The C library that its programs need.
        #[serde(default)]
        libc: Libc,
    },
}

/// The C library that a program needs of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Libc {
    /// GNU's.
    #[default]
    Glibc,
    /// None, or whichever there is.
    Any,
}

/// What is done in each environment before the agent's time begins.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Programs that the image must have.
    #[serde(default)]
    pub requires: Vec<String>,
    /// A shell command that shows that the agent starts. The last line that it prints is taken for the version.
    pub check: Option<Template>,
}

/// How the agent works at a task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// A shell command. The places are shell variables in it, and its arguments `"$@"` are those of the options.
    pub command: Template,
}

/// A file that is there before the agent starts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "content::Written")]
pub struct ConfigFile {
    /// Where.
    pub path: Template,
    /// What.
    pub content: FileContent,
}

/// How an agent is told of MCP servers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "mcp::Written")]
pub enum Mcp {
    /// In words, at the end of its instruction.
    InWords,
    /// In a file.
    InFile(Box<McpHandover>),
}

/// An option of the agent's, given by `--agent-kwarg NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentOption {
    /// One line for people.
    pub help: String,
    /// What it may be.
    #[serde(rename = "type", default)]
    pub kind: OptionType,
    /// The only values that it may have; empty for any.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Added to the agent's arguments. `${value}` is the value; a boolean's are added where it is true.
    #[serde(default)]
    pub arguments: Vec<Template>,
    /// Set to the value.
    pub env: Option<String>,
    /// What it is if nobody says.
    pub default: Option<serde_json::Value>,
}

/// Types of options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptionType {
    /// Any text.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
}

/// What an agent's output says of how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeRule {
    /// A regular expression, looked for in the last 64 KiB of what it wrote.
    pub pattern: String,
    /// What it means.
    pub cause: OutcomeCause,
    /// Whether it counts where the agent ended with exit code 0 too. Some agents end so whatever happens.
    #[serde(default)]
    pub whatever_exit_code: bool,
}

/// Meanings of an agent's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeCause {
    /// The agent gave up.
    AgentError,
    /// The conversation outgrew the model's context.
    ContextWindowExceeded,
    /// The model did not answer.
    ModelApi,
}

impl Install {
    /// The version that is installed if nobody asks for another; none where nothing is.
    pub fn default_version(&self) -> Option<&str> {
        match self {
            Self::Image => None,
            Self::Npm { version, .. } | Self::Pypi { version, .. } | Self::Script { version, .. } => {
                Some(version)
            }
        }
    }

    /// What the installed programs need of an image.
    pub(crate) fn libc(&self) -> Libc {
        match self {
            Self::Image => Libc::Any,
            Self::Npm { node: Some(_), .. } | Self::Pypi { .. } => Libc::Glibc,
            Self::Npm { libc, .. } | Self::Script { libc, .. } => *libc,
        }
    }
}
