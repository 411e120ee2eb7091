//! Task directories: the recorded verdicts of Harbor are its own, and the gate for authors on Docker.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::testbed;
use crate::program::text;

#[test]
#[ignore = "needs Harbor: run ./scripts/test"]
fn the_verdicts_of_the_corpus_are_harbors_own() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let corpus = format!("{root}/corpus/harbor_tasks.json");
    let output = Command::new(testbed("ROLLTAP_TESTBED_TRAINERS"))
        .args([format!("{root}/real/harbor_tasks.py"), corpus.clone()])
        .env("HARBOR_TELEMETRY", "0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let given: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
    let corpus: Value = serde_json::from_str(&fs::read_to_string(corpus).unwrap()).unwrap();
    let tasks = ["shapes", "odd"].iter().flat_map(|list| corpus[list].as_array().unwrap());
    let mut count = 0;
    for (task, given) in tasks.zip(&given) {
        assert_eq!(task["harbor"], given.as_str(), "{task}");
        count += 1;
    }
    assert_eq!(count, given.len());
}

/// Makes a task with a Dockerfile. Its tests pass if `/app/done` exists.
fn task(dir: &Path, name: &str, solution: &str) {
    let image = testbed("ROLLTAP_TESTBED_PREBUILT");
    for (file, content) in [
        ("task.toml", "[agent]\ntimeout_sec = 120.0\n[environment]\nworkdir = \"/app\"\n".to_owned()),
        ("instruction.md", "Do it.\n".to_owned()),
        ("environment/Dockerfile", format!("FROM {image}\nWORKDIR /app\n")),
        ("tests/test.sh", "[ -e /app/done ]; echo $((1 - $?)) > /logs/verifier/reward.txt\n".to_owned()),
        ("solution/solve.sh", format!("{solution}\n")),
    ] {
        let path = dir.join("tasks").join(name).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn the_gate_runs_solutions_in_containers() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "solved", "touch /app/done");
    task(dir.path(), "with späces and ünicode", "touch /app/done");
    task(dir.path(), "unsolved", "true");
    let check = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
        command.args(["tasks", "check", "tasks", "--oracle", "--nop", "-q"]).args(more);
        command.current_dir(dir.path()).output().unwrap()
    };
    let output = check(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for task in report["tasks"].as_array().unwrap() {
        let is_solved = task["dir"] != "tasks/unsolved";
        assert_eq!(task["valid"], is_solved, "{task:#}");
        let rewards: Vec<_> =
            task["agents"].as_array().unwrap().iter().map(|agent| &agent["reward"]).collect();
        assert_eq!(rewards, [if is_solved { 1.0 } else { 0.0 }, 0.0], "{task:#}");
    }
    fs::remove_dir_all(dir.path().join("tasks/unsolved")).unwrap();
    let output = check(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}
