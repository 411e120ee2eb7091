//! `docs/reference/environment.md`, below its introduction: every environment variable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use clap::{Arg, Command};

use super::markdown::{cell, documentation};
use super::variables::{Use, VARIABLES};
use super::{command, repository};

pub(super) fn page(command: &Command) -> String {
    let mut text = "## Variables of options\n\n| variable | option | meaning |\n|---|---|---|\n".to_owned();
    for (variable, (options, meaning)) in of_options(command) {
        let _ = writeln!(text, "| `{variable}` | {} | {} |", options.join(", "), cell(&meaning));
    }
    for (title, used) in [
        ("Variables without an option", Use::Read),
        ("Variables that rolltap sets", Use::Set),
        ("Variables of the Python package", Use::Python),
    ] {
        let _ = write!(text, "\n## {title}\n\n| variable | meaning |\n|---|---|\n");
        for variable in VARIABLES.iter().filter(|variable| variable.used == used) {
            let _ = writeln!(text, "| `{}` | {} |", variable.name, cell(variable.meaning));
        }
    }
    text
}

/// The variables of all options, each with its options and the first paragraph of their documentation.
fn of_options(command: &Command) -> BTreeMap<String, (Vec<String>, String)> {
    let mut all = BTreeMap::new();
    for subcommand in command.get_subcommands() {
        let with_variable = |option: &Arg| Some(option.get_env()?.to_string_lossy().into_owned());
        for option in subcommand.get_arguments() {
            let Some(variable) = with_variable(option) else { continue };
            let meaning = documentation(option).lines().next().unwrap_or_default().to_owned();
            let (options, _) = all.entry(variable).or_insert_with(|| (Vec::new(), meaning));
            let flag = option.get_long().unwrap_or_default();
            options.push(format!("`{} --{flag}`", subcommand.get_name()));
        }
    }
    all
}

/// The text of every file of the crates and of the Python package, without the tests.
fn sources() -> Vec<(PathBuf, String)> {
    let folders = [
        "agent/src",
        "cluster/src",
        "orchestrator/src",
        "proxy/src",
        "rollout/src",
        "sim/src",
        "src",
        "python/rolltap",
    ];
    let mut open: Vec<_> = folders.iter().map(|folder| repository(folder)).collect();
    let mut all = Vec::new();
    while let Some(path) = open.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if ["tests", "tests.rs", "docs", "docs.rs"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(text) = fs::read_to_string(&path) {
            all.push((path, text));
        }
    }
    all
}

/// The names in a text that begin with `ROLLTAP_`.
fn own_names(text: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let starts = text.match_indices("ROLLTAP_").map(|(at, _)| at);
    starts
        .filter(|&at| !text[..at].ends_with(is_of_name))
        .map(|at| text[at..].split(|c| !is_of_name(c)).next().unwrap_or_default())
        .collect()
}

/// The names in a text that stand in a call that reads the environment.
fn read_names(text: &str) -> BTreeSet<&str> {
    let calls = ["env::var(\"", "env::var_os(\"", "variable(\"", "try_from_env(\"", "of_host(\""];
    let after = |call: &&'static str| {
        text.match_indices(*call).map(|(at, call)| &text[at + call.len()..]).collect::<Vec<_>>()
    };
    calls.iter().flat_map(after).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn each_variable_in_the_code_is_on_the_page() {
    let known: BTreeSet<String> =
        of_options(&command()).into_keys().chain(VARIABLES.iter().map(|it| it.name.to_owned())).collect();
    let mut unknown = Vec::new();
    for (path, text) in sources() {
        let names = own_names(&text).into_iter().chain(read_names(&text));
        // Tests inside the sources use these names, and tests/README.md describes them.
        let names = names.filter(|name| !name.starts_with("ROLLTAP_TEST"));
        for name in names.filter(|name| !known.contains(*name)) {
            unknown.push(format!("{}: {name}", path.display()));
        }
    }
    assert!(unknown.is_empty(), "add to VARIABLES in src/docs/variables.rs:\n{}", unknown.join("\n"));
}

#[test]
fn each_variable_on_the_page_is_in_the_code() {
    let all: String = sources().into_iter().map(|(_, text)| text).collect();
    // Libraries read these variables.
    let of_libraries =
        ["TMPDIR", "NOTIFY_SOCKET", "SSL_CERT_FILE", "https_proxy", "http_proxy", "all_proxy", "no_proxy"];
    let is_ours = |name: &str| !of_libraries.contains(&name);
    for variable in VARIABLES.iter().filter(|variable| is_ours(variable.name)) {
        assert!(all.contains(&format!("\"{}", variable.name)), "{} is in no source", variable.name);
    }
}
