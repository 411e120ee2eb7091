//! `rolltap agents`, and an agent that a user declares: its own script installs it, and it works in the local
//! environment.

use std::fs;
use std::path::Path;

use super::program::{Ended, Running, json, repository, rolltap, run};

#[test]
fn all_are_listed_and_one_is_described() {
    let dir = tempfile::tempdir().unwrap();
    let listed = run(dir.path(), &["agents"]).stdout;
    for name in ["oracle", "terminus-2", "claude-code", "mini-swe-agent"] {
        assert!(listed.contains(&format!("\n  {name} ")), "{listed}");
    }
    let told = run(dir.path(), &["agents", "claude-code"]).stdout;
    for what in ["calls its model by  messages", "max_turns", "[default: bypassPermissions]"] {
        assert!(told.contains(what), "{told}");
    }
    let unknown = run(dir.path(), &["agents", "cladue-code"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("did you mean \"claude-code\"?"), "{}", unknown.stderr);
}

#[test]
fn a_definition_that_is_printed_is_one_of_the_users_own() {
    let dir = tempfile::tempdir().unwrap();
    let written = run(dir.path(), &["agents", "codex", "--definition"]).stdout;
    fs::write(dir.path().join("mine.toml"), written).unwrap();
    let told = run(dir.path(), &["agents", "./mine.toml"]).stdout;
    assert!(told.starts_with("codex: "), "{told}");
}

/// An agent that prints its inputs on standard output and solves the task.
const AGENT: &str = r#"
name = "my-agent"
description = "Solves one task"
dialect = "chat"
[install]
kind = "script"
version = "7"
libc = "any"
script = '''
echo installed >> "$ROLLTAP_TEST_LOG"
printf '#!/bin/sh\necho "$MODEL $1 $2"; echo "Hello, world!" > hello.txt\n' > program
chmod +x program
'''
[setup]
check = 'cat "$state/settings.json" >/dev/null && echo "version $version"'
[run]
command = '"$layer/program" "$instruction" "$@"'
[env]
MODEL = "${model}"
[[files]]
path = "${state}/settings.json"
[files.json]
url = "${openai_base_url}"
[options.turns]
help = "Turns"
type = "integer"
arguments = ["--turns=${value}"]
"#;

fn run_mine(dir: &Path, job: &str, more: &[&str]) -> Ended {
    fs::write(dir.join("mine.toml"), AGENT).unwrap();
    let mut sim = Running::start(dir, &["sim", "--listen", "127.0.0.1:0"]);
    let (upstream, task) = (sim.next_url(), repository("examples/tasks/hello-file"));
    let arguments =
        ["run", "-p", &task, "-a", "./mine.toml", "-e", "local", "--job-name", job, "--upstream", &upstream];
    let mut command = rolltap(dir, &[&arguments, more].concat());
    command.env("ROLLTAP_CACHE_DIR", dir.join("cache")).env("ROLLTAP_TEST_LOG", dir.join("log"));
    command.output().unwrap().into()
}

#[test]
fn an_agent_of_the_users_own_is_installed_once_and_solves_a_task() {
    let dir = tempfile::tempdir().unwrap();
    for job in ["one", "two"] {
        let ended = run_mine(dir.path(), job, &["--ak", "turns=3"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let mut trials =
            dir.path().join("jobs").join(job).read_dir().unwrap().map(|entry| entry.unwrap().path());
        let trial = trials.find(|path| path.join("trial.log").exists()).unwrap();
        let result = json(&trial.join("result.json"));
        assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{result}");
        assert_eq!(result["agent_result"]["metadata"]["agent_version"], "version 7");
        let said = fs::read_to_string(trial.join("agent/stdout.txt")).unwrap();
        assert!(said.starts_with("sim Create the file ") && said.contains(" --turns=3\n"), "{said}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap(), "installed\n");
}

#[test]
fn a_wrong_option_is_an_error_before_anything_is_installed() {
    let dir = tempfile::tempdir().unwrap();
    let ended = run_mine(dir.path(), "it", &["--ak", "turn=3"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("unknown option \"turn\" (did you mean \"turns\"?)"), "{}", ended.stderr);
    assert!(!dir.path().join("cache").exists() && !dir.path().join("jobs").exists());
}
