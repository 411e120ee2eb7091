//! `docs/reference/proxy-settings.md`, below its introduction: a table of all settings, and a section for each.

use std::fmt::Write;

use clap::Arg;

use super::markdown::{cell, default_of, documentation, flag, is_repeatable, wrapped};
use super::{example_file, markdown};
use crate::proxy::{FileTables, ProxyConfig};

pub(super) fn page() -> String {
    let command = ProxyConfig::options();
    let mut table = "| flag | variable | key | default |\n|---|---|---|---|\n".to_owned();
    let mut sections = String::new();
    for option in command.get_arguments() {
        table.push_str(&row(option));
        let key = option.get_id().as_str();
        let names = format!("Flag `{}`, variable `{}`.", flag(option), variable(option));
        sections.push_str(&section(key, &names, &documentation(option), &values(option)));
    }
    for (key, lines) in FileTables::KEYS {
        let default = example_file::table_default(key).unwrap_or_else(|| "none".to_owned());
        let _ = writeln!(table, "| | | `{key}` | {} |", default_cell(&default));
        sections.push_str(&section(key, "Neither a flag nor a variable.", &table_documentation(lines), ""));
    }
    format!("## Overview\n\n{table}\n## Settings\n{sections}")
}

fn row(option: &Arg) -> String {
    let flag = match is_repeatable(option) {
        true => format!("`{}` (repeatable)", flag(option)),
        false => format!("`{}`", flag(option)),
    };
    let default = match option.get_id().as_str() {
        example_file::REQUIRED => "required".to_owned(),
        _ => default_of(option).unwrap_or_else(|| "none".to_owned()),
    };
    let (variable, key) = (variable(option), option.get_id());
    format!("| {flag} | `{variable}` | `{key}` | {} |\n", default_cell(&default))
}

fn section(key: &str, names: &str, documentation: &str, values: &str) -> String {
    let mut text = format!("\n### `{key}`\n\n{}\n{}", wrapped(names, "", ""), wrapped(documentation, "", ""));
    if !values.is_empty() {
        let _ = write!(text, "\n{}", wrapped(values, "", ""));
    }
    let _ = write!(text, "\n```toml\n{}\n```\n", example_file::line(key));
    text
}

/// The lines of a doc comment as text with a line per paragraph, as clap has it.
pub(super) fn table_documentation(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines.iter().map(|line| line.trim()) {
        match line {
            "" => text.push_str("\n\n"),
            item if item.starts_with("- ") => text.push_str(&format!("\n{item}")),
            line if text.is_empty() || text.ends_with('\n') => text.push_str(line),
            line => text.push_str(&format!(" {line}")),
        }
    }
    text.replace("\n\n\n", "\n\n")
}

fn values(option: &Arg) -> String {
    if markdown::is_switch(option) {
        return String::new();
    }
    let values: Vec<_> = option.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect();
    if values.is_empty() { String::new() } else { format!("Values: {}.", values.join(", ")) }
}

fn variable(option: &Arg) -> String {
    option.get_env().unwrap_or_default().to_string_lossy().into_owned()
}

/// A value is code, and words are not.
fn default_cell(default: &str) -> String {
    let is_words = ["none", "never", "off", "required"].contains(&default)
        || default.contains(" of ")
        || default.contains(" the ");
    if is_words { cell(default) } else { format!("`{}`", cell(default)) }
}
