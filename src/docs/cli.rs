//! `docs/reference/cli.md`, below its introduction: every subcommand with its long help.

use std::fmt::Write;

use clap::{Arg, Command};

use super::markdown::{default_of, documentation, flag, is_repeatable, is_switch, wrapped};

pub(super) fn page(mut command: Command) -> String {
    let mut text = section(&mut command, "##");
    for subcommand in command.get_subcommands_mut().filter(|command| is_own(command)) {
        text.push_str(&section(subcommand, "##"));
        for below in subcommand.get_subcommands_mut().filter(|command| is_own(command)) {
            text.push_str(&section(below, "###"));
        }
    }
    text
}

/// The subcommand `help` is part of clap.
pub(super) fn is_own(command: &Command) -> bool {
    command.get_name() != "help" && !command.is_hide_set()
}

fn section(command: &mut Command, heading: &str) -> String {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{heading} `{name}`\n\n{}\n```text\n{usage}\n```\n\n", about_of(&about));
    for subcommand in command.get_subcommands().filter(|command| is_own(command)) {
        let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
        let link = subcommand.get_name();
        let _ = writeln!(text, "- [`{name} {link}`](#{}-{link}): {about}", name.replace(' ', "-"));
    }
    if command.get_subcommands().next().is_some() {
        text.push('\n');
    }
    for (title, options) in grouped(command) {
        let _ = write!(text, "**{title}**\n\n");
        options.iter().for_each(|option| text.push_str(&entry(option)));
        text.push('\n');
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(text, "```text\n{}\n```\n\n", after.to_string().trim_end());
    }
    text
}

/// The first line of a subcommand's text has no full stop, because it is a title in `--help`.
fn about_of(text: &str) -> String {
    let (title, rest) = text.split_once('\n').unwrap_or((text, ""));
    let title = title.trim_end_matches('.');
    wrapped(format!("{title}.\n{rest}").trim_end(), "", "")
}

/// Options by their heading, in the order of their declaration. The options of clap and of all subcommands are left out
/// except at the program itself.
fn grouped(command: &Command) -> Vec<(String, Vec<&Arg>)> {
    let mut groups: Vec<(String, Vec<&Arg>)> = Vec::new();
    let is_program = command.get_bin_name().is_none_or(|name| !name.contains(' '));
    let is_of_clap = |option: &&Arg| ["help", "version"].contains(&option.get_id().as_str());
    let shown = command.get_arguments().filter(|option| !option.is_hide_set() && !is_of_clap(option));
    for option in shown.filter(|option| is_program || !option.is_global_set()) {
        let title = match (option.get_help_heading(), option.is_positional()) {
            (Some(heading), _) => heading,
            (None, true) => "Arguments",
            (None, false) => "Options",
        };
        match groups.iter_mut().find(|(known, _)| known == title) {
            Some((_, options)) => options.push(option),
            None => groups.push((title.to_owned(), vec![option])),
        }
    }
    groups
}

/// A list item: the flag, its documentation, and one line of facts.
fn entry(option: &Arg) -> String {
    let mut facts = Vec::new();
    if let Some(variable) = option.get_env() {
        facts.push(format!("environment `{}`", variable.to_string_lossy()));
    }
    if let Some(default) = default_of(option).filter(|_| !is_switch(option)) {
        facts.push(format!("default: {default}"));
    }
    if is_repeatable(option) && option.get_long().is_some() {
        facts.push("repeatable".to_owned());
    }
    let values = option.get_possible_values().into_iter().filter(|_| !is_switch(option));
    let (explained, plain): (Vec<_>, Vec<_>) = values.partition(|value| value.get_help().is_some());
    if !plain.is_empty() {
        let values: Vec<_> = plain.iter().map(|value| format!("`{}`", value.get_name())).collect();
        facts.push(format!("values: {}", values.join(", ")));
    }
    let mut text = wrapped(&format!("`{}`: {}", flag(option), documentation(option)), "- ", "  ");
    if !facts.is_empty() {
        text.push_str(&wrapped(&format!("({})", facts.join("; ")), "  ", "  "));
    }
    for value in explained {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        text.push_str(&wrapped(&format!("`{}`: {help}", value.get_name()), "  - ", "    "));
    }
    text
}
