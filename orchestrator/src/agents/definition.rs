//! An agent's definition in a file: how it is installed, how it runs, and how it gets the URL of its model.
//!
//! The agents of [`catalog`](super::catalog) are such files, and a user may write others (`-a path/to/agent.toml`).
//! `docs/how-to/declare-an-agent.md` has the format. The only programs in a definition are shell commands. They run
//! inside the environment or, for `kind = "script"`, once on this host.

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

/// The definition of an agent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The name for `-a`: lower-case letters, digits and `-`.
    pub name: String,
    /// A description in one line.
    pub description: String,
    /// The API by which the agent calls its model.
    pub dialect: Dialect,
    /// How the agent is installed on this machine.
    #[serde(default)]
    pub install: Install,
    /// The setup in each environment before the agent's time begins.
    #[serde(default)]
    pub setup: Setup,
    /// How the agent works at a task.
    pub run: Run,
    /// Environment variables of the agent.
    #[serde(default)]
    pub env: BTreeMap<String, Template>,
    /// Files to write before the agent starts.
    #[serde(default)]
    pub files: Vec<ConfigFile>,
    /// How the agent gets MCP servers. `None` if it supports none.
    pub mcp: Option<Mcp>,
    /// The directory in which the agent looks for skills. `None` if it supports none.
    pub skills: Option<Template>,
    /// The options of `--agent-kwarg` in addition to `version`.
    #[serde(default)]
    pub options: BTreeMap<String, AgentOption>,
    /// Rules that derive the end of the agent from its output. The first rule that matches counts.
    #[serde(default)]
    pub outcome: Vec<OutcomeRule>,
}

/// The API that an agent uses.
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
    /// Not installed: the image has the program.
    #[default]
    Image,
    /// From the npm registry, by this host's `npm`, without install scripts.
    Npm {
        /// The package.
        package: String,
        /// The version, unless `--agent-kwarg version=` sets another.
        version: String,
        /// The major version of Node.js that runs the package and is installed with it. `None` for a native program.
        node: Option<u32>,
        /// The C library that the programs need.
        #[serde(default)]
        libc: Libc,
    },
    /// From PyPI, into a copy of a Python of this host.
    Pypi {
        /// The package.
        package: String,
        /// The version, unless `--agent-kwarg version=` sets another.
        version: String,
        /// The minor versions of Python 3 that the package supports, the preferred first.
        python: Vec<u32>,
        /// Further requirements in pip's format.
        #[serde(default)]
        with: Vec<String>,
    },
    /// By a shell script on this host that writes its files below `$ROLLTAP_LAYER`.
    Script {
        /// The script, for `bash -eu`.
        script: String,
        /// The value of `$ROLLTAP_VERSION`, unless `--agent-kwarg version=` sets another.
        version: String,
        /// The C library that the programs need.
        #[serde(default)]
        libc: Libc,
    },
}

/// The C library that a program needs in an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Libc {
    /// GNU's C library.
    #[default]
    Glibc,
    /// Any C library, or none.
    Any,
}

/// The setup in each environment before the agent's time begins.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Programs that the image must have.
    #[serde(default)]
    pub requires: Vec<String>,
    /// A shell command that checks that the agent starts. The last line of its output is the version.
    pub check: Option<Template>,
}

/// How the agent works at a task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// A shell command. Places are shell variables in it, and `"$@"` has the arguments from the options.
    pub command: Template,
}

/// A file to write before the agent starts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "content::Written")]
pub struct ConfigFile {
    /// The path.
    pub path: Template,
    /// The content.
    pub content: FileContent,
}

/// How an agent gets MCP servers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "mcp::Written")]
pub enum Mcp {
    /// As text at the end of its instruction.
    InWords,
    /// In a file.
    InFile(Box<McpHandover>),
}

/// An option of the agent, set by `--agent-kwarg NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentOption {
    /// A description in one line.
    pub help: String,
    /// The type of the value.
    #[serde(rename = "type", default)]
    pub kind: OptionType,
    /// The allowed values. Empty if every value is allowed.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Arguments to add. `${value}` is the option's value. The arguments of a boolean are added only if it is true.
    #[serde(default)]
    pub arguments: Vec<Template>,
    /// An environment variable that gets the value.
    pub env: Option<String>,
    /// The value if the user sets none.
    pub default: Option<serde_json::Value>,
}

/// Types of options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptionType {
    /// Any text.
    #[default]
    String,
    /// An integer.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
}

/// A rule that derives the end of an agent from its output.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeRule {
    /// A regular expression, searched for in the last 64 KiB of each output stream.
    pub pattern: String,
    /// The meaning of a match.
    pub cause: OutcomeCause,
    /// Whether the rule also holds if the exit code is 0. Some agents always end with 0.
    #[serde(default)]
    pub whatever_exit_code: bool,
}

/// Meanings of an agent's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeCause {
    /// The agent gave up.
    AgentError,
    /// The conversation exceeded the model's context.
    ContextWindowExceeded,
    /// The model did not answer.
    ModelApi,
}

impl Install {
    /// Returns the version that is installed by default. `None` if nothing is installed.
    pub fn default_version(&self) -> Option<&str> {
        match self {
            Self::Image => None,
            Self::Npm { version, .. } | Self::Pypi { version, .. } | Self::Script { version, .. } => {
                Some(version)
            }
        }
    }

    /// Returns the C library that the installed programs need.
    pub(crate) fn libc(&self) -> Libc {
        match self {
            Self::Image => Libc::Any,
            // The bundled Node.js and Python are built for GNU's C library.
            Self::Npm { node: Some(_), .. } | Self::Pypi { .. } => Libc::Glibc,
            Self::Npm { libc, .. } | Self::Script { libc, .. } => *libc,
        }
    }
}
