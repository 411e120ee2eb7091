//! The table of Harbor's options and commands in the documentation, compared with the installed package.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::testbed;
use crate::program::{both_outputs, rolltap, text};

/// Returns options, commands and environments of the installed package.
fn of_harbor() -> Value {
    let mut command = Command::new(format!("{}/python", testbed("ROLLTAP_TESTBED_CLIENTS")));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/harbor_options.py"));
    command.env("HARBOR_TELEMETRY", "0").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the rows of the tables of the page: the names in code of the first cell, and the second cell.
fn rows() -> BTreeMap<BTreeSet<String>, String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/harbor-options.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    rows.map(|(names, here)| (names.split('`').step_by(2).map(str::to_owned).collect(), here.to_owned()))
        .collect()
}

fn names(list: &Value) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "needs Harbor: run ./scripts/test"]
fn every_option_of_harbor_is_in_the_table_and_every_option_of_the_table_exists() {
    let rows = rows();
    let harbor = of_harbor();
    let options: BTreeSet<_> = harbor["options"].as_array().unwrap().iter().map(names).collect();
    assert!(options.len() > 90, "{options:?}");
    let in_table: BTreeSet<_> =
        rows.keys().filter(|names| names.iter().all(|name| name.starts_with('-'))).cloned().collect();
    let missing: Vec<_> = options.difference(&in_table).collect();
    let invented: Vec<_> = in_table.difference(&options).collect();
    assert!(missing.is_empty() && invented.is_empty(), "missing: {missing:?}, invented: {invented:?}");
    let help = both_outputs(&rolltap(&["run", "--help"]));
    let own: BTreeSet<_> = help.split(|letter: char| !(letter.is_alphanumeric() || letter == '-')).collect();
    for (names, here) in rows.iter().filter(|(_, here)| here.starts_with("the same")) {
        for name in names {
            assert!(
                own.contains(name.as_str()),
                "rolltap run --help lacks {name}, although the table has: {here}"
            );
        }
    }
    for (names, _) in
        rows.iter().filter(|(names, here)| in_table.contains(*names) && !here.starts_with("the same"))
    {
        for name in names {
            let answer = both_outputs(&rolltap(&["run", "-p", ".", name]));
            assert!(answer.contains("which is an option of harbor run. "), "{name}: {answer}");
        }
    }
}

#[test]
#[ignore = "needs Harbor: run ./scripts/test"]
fn every_command_and_environment_of_harbor_is_answered() {
    let harbor = of_harbor();
    let rows = rows();
    let commands: BTreeSet<_> = rows.keys().flatten().filter(|name| !name.starts_with('-')).collect();
    let help = both_outputs(&rolltap(&["--help"]));
    for command in names(&harbor["commands"]) {
        let is_own = help.lines().any(|line| line.split_whitespace().next() == Some(&command));
        assert!(is_own || commands.contains(&command), "{command}");
    }
    for environment in names(&harbor["environments"]).iter().filter(|name| *name != "docker") {
        let answer = both_outputs(&rolltap(&["run", "-p", ".", "-e", environment]));
        let expected = format!("-e harbor --harbor-env {environment}");
        assert!(answer.contains(&expected), "{environment}: {answer}");
    }
}
