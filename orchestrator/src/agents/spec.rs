//! Creates an agent from its name and options.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::catalog::{self, CATALOG};
use super::definition::Definition;
use super::{AgentSpecError, InstalledAgent, TerminalOptions, Terminus2};
use crate::agents::HarborAgent;
use crate::common::suggest::nearest;

/// The agents that are part of rolltap, each with its description.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("oracle", "The task's own solution: shows that it can be solved"),
    ("nop", "Nothing: shows that it is not solved from the start"),
    ("command", "Any shell command inside the environment (--agent-command)"),
    ("terminal", "rolltap's own agent: reads a terminal's screen and types; nothing need be in the image"),
    ("terminus-2", "Harbor's own, in a Python of this host that has Harbor (--harbor-python)"),
];

/// An agent with its settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum AgentSpec {
    /// Runs the task's own solution, which shows that the task can be solved.
    Oracle,
    /// Does nothing, which shows that the task is not solved from the start.
    Nop,
    /// Any program, run by a shell inside the environment.
    Command {
        /// The shell command. The base URLs, the key, the model and the instruction are in its environment variables.
        command: String,
        /// Additional environment variables. They may be secrets, so they are in no record.
        #[serde(skip)]
        env: BTreeMap<String, String>,
    },
    /// rolltap's own agent: reads a terminal's screen and types, by Terminus-2's rules.
    Terminal(Box<TerminalOptions>),
    /// An agent with a definition, from the catalog or from the user.
    Installed(Box<InstalledAgent>),
    /// Harbor's Terminus-2, a process of this host.
    Terminus2(Box<Terminus2>),
    /// An agent of Harbor, for the environment `harbor`.
    Harbor(Box<HarborAgent>),
}

/// The options of agents, which are checked for the chosen agent.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    /// `--agent-command`
    pub command: Option<String>,
    /// `--max-turns`
    pub max_turns: Option<u32>,
    /// `--harbor-python`: the Python that has Harbor, for Harbor's own agents.
    pub harbor_python: Option<PathBuf>,
    /// `--agent-kwarg`, or `kwargs` of Harbor's `AgentConfig`.
    pub kwargs: Map<String, Value>,
    /// `--agent-env`, or `env` of Harbor's `AgentConfig`: environment variables of the agent.
    pub env: BTreeMap<String, String>,
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).chain(CATALOG.iter().map(|(name, _)| *name))
}

impl AgentSpec {
    /// Creates the agent with this name or definition file, and with these options.
    ///
    /// # Errors
    /// Fails for an unknown name, an invalid definition, a missing option, or an option that the agent would ignore.
    pub fn new(name: &str, options: AgentOptions) -> Result<Self, AgentSpecError> {
        let of_another =
            |option, wanted| AgentSpecError::OptionOfAnother { option, wanted, agent: name.to_owned() };
        if options.command.is_some() && name != "command" {
            return Err(of_another("--agent-command", "command"));
        }
        if options.max_turns.is_some() && name != "terminal" {
            return Err(of_another("--max-turns", "terminal"));
        }
        if BUILT_IN.iter().any(|(built_in, _)| *built_in == name) {
            return Self::built_in(name, options);
        }
        let definition = match catalog::find(name) {
            Some(text) => parse(name, text)?,
            None if is_file(name) => parse(name, &read(name)?)?,
            None => {
                return Err(AgentSpecError::Unknown {
                    name: name.to_owned(),
                    suggestion: nearest(name, names()),
                });
            }
        };
        let agent = definition.name.clone();
        let installed = InstalledAgent::new(Arc::new(definition), options.kwargs, options.env);
        installed
            .map(|agent| Self::Installed(Box::new(agent)))
            .map_err(|why| AgentSpecError::Option { agent, why })
    }

    /// Creates an agent of Harbor with this name. Harbor checks before the first trial that the agent exists.
    ///
    /// # Errors
    /// Fails for an option that belongs to an agent of rolltap.
    pub fn of_harbor(name: &str, options: AgentOptions) -> Result<Self, AgentSpecError> {
        // The Python is a setting of the job here, not of the agent.
        let AgentOptions { command, max_turns, kwargs, env, harbor_python: _ } = options;
        let of_another =
            |option, wanted| AgentSpecError::OptionOfAnother { option, wanted, agent: name.to_owned() };
        if command.is_some() {
            return Err(of_another("--agent-command", "command"));
        }
        if max_turns.is_some() {
            return Err(of_another("--max-turns", "terminal"));
        }
        Ok(Self::Harbor(Box::new(HarborAgent { name: name.to_owned(), kwargs, env })))
    }

    fn built_in(name: &str, options: AgentOptions) -> Result<Self, AgentSpecError> {
        if name == "terminus-2" {
            return Ok(Self::Terminus2(Box::new(Terminus2::new(
                options.kwargs,
                options.env,
                options.harbor_python.as_deref(),
            ))));
        }
        let refused = |why: String| AgentSpecError::Option { agent: name.to_owned(), why };
        if name == "terminal" {
            return Self::terminal(options).map_err(refused);
        }
        if let Some(option) = options.kwargs.keys().next() {
            return Err(refused(format!("it has no option {option:?}")));
        }
        // The oracle and `nop` would ignore variables.
        if name != "command"
            && let Some(variable) = options.env.keys().next()
        {
            return Err(refused(format!("it has no environment variables to set {variable} among")));
        }
        Ok(match name {
            "oracle" => Self::Oracle,
            "nop" => Self::Nop,
            _ => {
                let command = options.command.ok_or(AgentSpecError::CommandMissing)?;
                Self::Command { command, env: options.env }
            }
        })
    }

    fn terminal(options: AgentOptions) -> Result<Self, String> {
        let said = TerminalOptions::read(options.kwargs)?;
        let max_turns = options.max_turns.or(said.max_turns);
        Ok(Self::Terminal(Box::new(TerminalOptions { max_turns, env: options.env, ..said })))
    }

    /// Returns the name as in [`BUILT_IN`] and [`CATALOG`], or as in the definition file.
    pub fn name(&self) -> &str {
        match self {
            Self::Oracle => "oracle",
            Self::Nop => "nop",
            Self::Command { .. } => "command",
            Self::Terminal(_) => "terminal",
            Self::Installed(agent) => &agent.definition().name,
            Self::Terminus2(_) => "terminus-2",
            Self::Harbor(agent) => &agent.name,
        }
    }

    /// Returns whether a trial is pointless without a reachable model.
    pub fn calls_model(&self) -> bool {
        match self {
            Self::Command { .. } => true,
            other => other.needs_model(),
        }
    }

    /// Returns whether the agent needs a model's name. A command may have a name of its own.
    pub fn needs_model(&self) -> bool {
        match self {
            Self::Oracle | Self::Nop | Self::Command { .. } => false,
            Self::Terminal(_) | Self::Installed(_) | Self::Terminus2(_) => true,
            Self::Harbor(agent) => agent.calls_model(),
        }
    }
}

/// Returns whether the name is a path. No agent's name contains a `/` or ends in `.toml`.
fn is_file(name: &str) -> bool {
    name.contains('/') || Path::new(name).extension().is_some_and(|extension| extension == "toml")
}

fn read(path: &str) -> Result<String, AgentSpecError> {
    std::fs::read_to_string(path)
        .map_err(|error| AgentSpecError::File { path: path.to_owned(), why: error.to_string() })
}

fn parse(path: &str, text: &str) -> Result<Definition, AgentSpecError> {
    let definition = Definition::parse(text);
    let definition =
        definition.map_err(|source| AgentSpecError::Definition { path: path.to_owned(), source })?;
    // Its trials would be taken for those of the built-in agent with that name.
    if is_file(path) && BUILT_IN.iter().any(|(name, _)| *name == definition.name) {
        return Err(AgentSpecError::Option {
            agent: definition.name,
            why: format!("{path} takes the name of an agent of rolltap's own; choose another"),
        });
    }
    Ok(definition)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(kwargs: Value) -> AgentOptions {
        let Value::Object(kwargs) = kwargs else { panic!("no object") };
        AgentOptions { kwargs, ..AgentOptions::default() }
    }

    #[test]
    fn an_unknown_agent_is_told_the_known_ones_and_the_nearest() {
        let error = AgentSpec::new("terminl", AgentOptions::default()).unwrap_err();
        assert!(error.to_string().starts_with(
            "unknown agent \"terminl\" (did you mean \"terminal\"?); known agents: oracle, nop, command, terminal, terminus-2, \
             claude-code, codex, "
        ));
        let error = AgentSpec::new("cluade-code", AgentOptions::default()).unwrap_err();
        assert!(matches!(error, AgentSpecError::Unknown { suggestion: Some("claude-code"), .. }), "{error}");
    }

    #[test]
    fn options_of_another_agent_are_refused_rather_than_ignored() {
        let options = AgentOptions { command: Some("true".into()), ..AgentOptions::default() };
        let error = AgentSpec::new("oracle", options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--agent-command is for agent \"command\", but the agent is \"oracle\""
        );
        let options =
            AgentOptions { command: Some("true".into()), max_turns: Some(3), ..AgentOptions::default() };
        assert!(AgentSpec::new("command", options).is_err());
        assert_eq!(AgentSpec::new("command", AgentOptions::default()), Err(AgentSpecError::CommandMissing));
        let error = AgentSpec::new("nop", with(json!({"a": 1}))).unwrap_err();
        assert_eq!(error.to_string(), "agent \"nop\": it has no option \"a\"");
        let error = AgentSpec::new("codex", with(json!({"max_turns": 1}))).unwrap_err();
        assert!(error.to_string().starts_with("agent \"codex\": unknown option \"max_turns\""), "{error}");
    }

    #[test]
    fn every_name_makes_the_agent_of_that_name() {
        for name in names() {
            let command = (name == "command").then(|| "true".to_owned());
            let agent = AgentSpec::new(name, AgentOptions { command, ..AgentOptions::default() }).unwrap();
            assert_eq!(agent.name(), name);
        }
        assert_eq!(AgentSpec::new("qwen-coder", AgentOptions::default()).unwrap().name(), "qwen-code");
    }

    #[test]
    fn a_records_kwargs_are_what_was_given_and_the_version() {
        let agent = AgentSpec::new("claude-code", with(json!({"max_turns": 3, "version": "2.0.0"}))).unwrap();
        let record = serde_json::to_value(&agent).unwrap();
        assert_eq!(record, json!({"name": "installed", "version": "2.0.0", "max_turns": 3}));
        for wrong in [json!("../x"), json!("latest || rm"), json!(true)] {
            assert!(AgentSpec::new("claude-code", with(json!({"version": wrong}))).is_err());
        }
    }

    #[test]
    fn an_agent_may_be_a_file_of_the_users() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mine.toml");
        let path = file.display().to_string();
        let text = "name = 'mine'\ndescription = ''\ndialect = 'chat'\n[run]\ncommand = 'true'\n";
        std::fs::write(&file, text).unwrap();
        assert_eq!(AgentSpec::new(&path, AgentOptions::default()).unwrap().name(), "mine");
        std::fs::write(&file, text.replace("mine", "oracle")).unwrap();
        assert!(matches!(AgentSpec::new(&path, AgentOptions::default()), Err(AgentSpecError::Option { .. })));
        std::fs::write(&file, text.replace("dialect", "dilect")).unwrap();
        let error = AgentSpec::new(&path, AgentOptions::default()).unwrap_err().to_string();
        assert!(
            error.contains("mine.toml cannot be used") && error.contains("did you mean \"dialect\""),
            "{error}"
        );
        let error = AgentSpec::new("./none.toml", AgentOptions::default()).unwrap_err();
        assert!(
            error.to_string().starts_with("agent file ./none.toml cannot be read: No such file"),
            "{error}"
        );
    }
}
