//! `rolltap agents`

use std::fmt::Write;

use anyhow::anyhow;
use clap::Args;
use rolltap_orchestrator::agents::catalog::{self, CATALOG};
use rolltap_orchestrator::agents::definition::{Definition, Dialect, Install, OptionType};
use rolltap_orchestrator::agents::{
    AgentOptions, AgentSpec, AgentSpecError, BUILT_IN, TERMINAL_OPTIONS, is_installed,
};
use serde_json::Value;

use crate::{Outcome, terminal};

/// List the agents of `rolltap run -a`, with their options
///
/// rolltap installs an agent once per version, from the agent's own package, into a directory of this host. Containers
/// mount the directory read-only. The agent runs as its users run it, and its calls go through the proxy.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Describe one agent: the agent of this name, or of this definition file.
    #[arg(value_name = "AGENT")]
    agent: Option<String>,
    /// Print the definition of the agent, as a basis for your own definition.
    #[arg(long, requires = "agent")]
    definition: bool,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap agents
  rolltap agents claude-code
  rolltap agents codex --definition > my-codex.toml
  rolltap run -p tasks -a ./my-codex.toml --upstream http://127.0.0.1:8000";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    match &arguments.agent {
        None => terminal::say(list()?),
        Some(name) => terminal::say(one(name, arguments.definition)?.trim_end()),
    }
    Ok(Outcome::Done)
}

fn list() -> anyhow::Result<String> {
    let mut text = String::from("Part of rolltap:\n");
    for (name, does) in BUILT_IN {
        let _ = writeln!(text, "  {name:<15} {does}");
    }
    text.push_str("\nInstalled once, when they are first used:\n");
    for (_, written) in CATALOG {
        let agent = Definition::parse(written)?;
        let dialect = dialect(agent.dialect);
        let here = if is_installed(&agent) { "  (installed)" } else { "" };
        let _ = writeln!(
            text,
            "  {:<15} {:<36} {dialect:<10} {}{here}",
            agent.name,
            agent.description,
            package(&agent.install)
        );
    }
    text.push_str("\n`rolltap agents NAME` says more of one.");
    Ok(text)
}

fn one(name: &str, as_written: bool) -> anyhow::Result<String> {
    if let Some((_, does)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
        return match as_written {
            true => Err(anyhow!("agent {name:?} is part of rolltap and declared by no file")),
            false if name == "terminal" => Ok(terminal_agent(does)),
            false => Ok(format!("{name}: {does}")),
        };
    }
    let written = match catalog::find(name) {
        Some(written) => written.to_owned(),
        // A name outside the catalog may be the path of a definition file. Only these two errors exclude that: an error
        // about options does not matter for a description.
        None => match AgentSpec::new(name, AgentOptions::default()) {
            Err(error @ (AgentSpecError::Unknown { .. } | AgentSpecError::File { .. })) => {
                return Err(error.into());
            }
            _ => std::fs::read_to_string(name)?,
        },
    };
    if as_written {
        return Ok(written);
    }
    Ok(described(&Definition::parse(&written)?))
}

fn terminal_agent(does: &str) -> String {
    let mut text =
        format!("terminal: {does}\n\nOptions (--agent-kwarg NAME=VALUE), by Terminus-2's names:\n");
    for (name, help) in TERMINAL_OPTIONS {
        let _ = writeln!(text, "  {name:<34} {help}");
    }
    text
}

fn described(agent: &Definition) -> String {
    let mut text = format!("{}: {}\n", agent.name, agent.description);
    let _ = writeln!(text, "\ncalls its model by  {}", dialect(agent.dialect));
    let _ = writeln!(text, "installed from      {}", package(&agent.install));
    let needs = match agent.setup.requires.as_slice() {
        [] => "nothing".to_owned(),
        programs => programs.join(", "),
    };
    let _ = writeln!(text, "needs of an image   {needs}");
    let yes_or_no = |takes: bool| if takes { "yes" } else { "no" };
    let _ = writeln!(text, "takes MCP servers   {}", yes_or_no(agent.mcp.is_some()));
    let _ = writeln!(text, "takes skills        {}", yes_or_no(agent.skills.is_some()));
    text.push_str("\nOptions (--agent-kwarg NAME=VALUE):\n");
    if let Some(version) = agent.install.default_version() {
        let _ = writeln!(text, "  {:<22} The version to install [default: {version}]", "version");
    }
    for (name, option) in &agent.options {
        let kind = match option.kind {
            OptionType::String => "text",
            OptionType::Integer => "whole number",
            OptionType::Number => "number",
            OptionType::Boolean => "true or false",
        };
        let values = if option.choices.is_empty() { kind.to_owned() } else { option.choices.join("|") };
        let default = option.default.as_ref().map(|value| match value {
            Value::String(text) => format!(" [default: {text}]"),
            other => format!(" [default: {other}]"),
        });
        let _ = writeln!(text, "  {name:<22} {} ({values}){}", option.help, default.unwrap_or_default());
    }
    text
}

fn dialect(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Chat => "chat",
        Dialect::Responses => "responses",
        Dialect::Messages => "messages",
        Dialect::Gemini => "gemini",
    }
}

fn package(install: &Install) -> String {
    match install {
        Install::Image => "nowhere: the image has it".to_owned(),
        Install::Npm { package, version, .. } => format!("npm: {package} {version}"),
        Install::Pypi { package, version, .. } => format!("PyPI: {package} {version}"),
        Install::Script { version, .. } => format!("a script of its definition: {version}"),
    }
}
