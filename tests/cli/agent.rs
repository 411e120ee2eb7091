//! `rolltap agent`: the terminal agent alone, at a task in the local environment.

use std::fs;
use std::path::Path;

use super::program::{Ended, Running, json, repository, run, unused_address};

/// Two answers in XML: one writes the file, and the last one is repeated until the completion is accepted.
const SCRIPT: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = """<response><analysis>a</analysis><plan>p</plan><commands>
<keystrokes duration="0.2">echo "$GREETING" > hello.txt
</keystrokes></commands></response>"""
[[conversation.turn]]
[[conversation.turn.answer]]
content = "<response><analysis/><plan/><commands/><task_complete>true</task_complete></response>"
"#;

fn agent(dir: &Path, base_url: &str, more: &[&str]) -> Ended {
    let task = repository("examples/tasks/hello-file");
    let arguments = ["agent", "-p", &task, "-e", "local", "-m", "sim", "-o", "out", "--base-url", base_url];
    run(dir, &[&arguments, more].concat())
}

#[test]
fn it_works_at_a_task_and_its_tests_judge() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("script.toml"), SCRIPT).unwrap();
    let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0", "--script", "script.toml"]);
    let base_url = format!("{}/v1", sim.next_url());
    let options = ["--verify", "--ak", "parser_name=xml", "--ae", "GREETING=Hello, world!"];
    let ended = agent(dir.path(), &base_url, &options);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for said in ["stopped after 3 turns: completed", "reward: 1", "out/agent/trajectory.json"] {
        assert!(ended.stdout.contains(said), "{said}: {}", ended.stdout);
    }
    let trajectory = json(&dir.path().join("out/agent/trajectory.json"));
    assert_eq!(trajectory["agent"]["extra"]["parser"], "xml");
    assert_eq!(trajectory["steps"].as_array().map(Vec::len), Some(4));
    assert!(dir.path().join("out/verifier/test-stdout.txt").exists());
}

#[test]
fn an_unreachable_model_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let ended = agent(dir.path(), &format!("{}/v1", unused_address()), &["--max-turns", "1"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("no answer from the model"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("reward"), "{}", ended.stdout);
}

#[test]
fn wrong_options_are_errors_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let ended = agent(dir.path(), "http://127.0.0.1:9/v1", &["--ak", "max_turn=1"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("did you mean \"max_turns\"?"), "{}", ended.stderr);
    assert!(!dir.path().join("out").exists());
}
