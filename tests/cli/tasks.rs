//! `rolltap tasks check`, and jobs some of whose tasks cannot be used.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::jobs::{read, results, task};
use super::program::{Ended, rolltap, run};

const PASSES: &str = "echo 1 > /logs/verifier/reward.txt";
/// Tests that only the solution passes.
const NEEDS_SOLUTION: &str = "if [ -e done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt";

fn with_solution(dir: &Path, name: &str, tests: &str, solution: &str) {
    let task = task(dir, name, tests);
    fs::create_dir(task.join("solution")).unwrap();
    fs::write(task.join("solution/solve.sh"), format!("#!/bin/sh\n{solution}\n")).unwrap();
}

/// Makes two good tasks and three bad ones in `tasks/`.
fn good_and_bad(dir: &Path) {
    with_solution(dir, "good", NEEDS_SOLUTION, "touch done");
    with_solution(dir, "näme with späces", NEEDS_SOLUTION, "touch done");
    let wrong = task(dir, "wrong-values", PASSES);
    let toml = "[agent]\ntimeout_sec = \"soon\"\n\n[environment]\ndocker_image = \"unused\"\nworkdir = \"app\"\ncpus = 0\n";
    fs::write(wrong.join("task.toml"), toml).unwrap();
    let without_tests = task(dir, "without-tests", PASSES);
    fs::remove_dir_all(without_tests.join("tests")).unwrap();
    fs::remove_file(without_tests.join("instruction.md")).unwrap();
    fs::write(task(dir, "broken", PASSES).join("task.toml"), "[agent\n").unwrap();
}

#[test]
fn every_problem_is_listed_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    good_and_bad(dir.path());
    let ended = run(dir.path(), &["tasks", "check", "tasks"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    insta::assert_snapshot!(ended.stdout);
    let wrong_values = fs::read_to_string(dir.path().join("tasks/wrong-values/task.toml")).unwrap();
    fs::write(dir.path().join("tasks/wrong-values/task.toml"), wrong_values.replace("\"soon\"", "60"))
        .unwrap();
    let ended = run(dir.path(), &["tasks", "check", "tasks/wrong-values", "tasks/good"]);
    insta::assert_snapshot!("values_are_checked_once_the_types_are_right", ended.stdout);
}

#[test]
fn programs_get_the_same_as_json() {
    let dir = tempfile::tempdir().unwrap();
    good_and_bad(dir.path());
    let ended = run(dir.path(), &["tasks", "check", "tasks", "--json"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&report["valid"], &report["invalid"]), (&json!(2), &json!(3)), "{report:#}");
    let wrong =
        report["tasks"].as_array().unwrap().iter().find(|task| task["dir"] == "tasks/wrong-values").unwrap();
    let problem = &wrong["problems"][0];
    assert_eq!(problem["file"], "tasks/wrong-values/task.toml");
    assert_eq!((&problem["line"], &problem["severity"]), (&json!(2), &json!("error")));
    assert!(report["tasks"].as_array().unwrap().iter().any(|task| task["name"] == "näme with späces"));
}

#[test]
fn a_directory_without_a_task_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let ended = run(dir.path(), &["tasks", "check", "empty"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("no task found at empty"), "{}", ended.stderr);
    assert_eq!(run(dir.path(), &["tasks", "check"]).code, Some(2));
}

fn gate(dir: &Path, more: &[&str]) -> Ended {
    run(dir, &[&["tasks", "check", "tasks", "-e", "local", "-q", "--oracle", "--nop"], more].concat())
}

#[test]
fn the_gate_passes_tasks_that_only_their_solution_solves() {
    let dir = tempfile::tempdir().unwrap();
    with_solution(dir.path(), "good", NEEDS_SOLUTION, "touch done");
    with_solution(dir.path(), "näme with späces", NEEDS_SOLUTION, "touch done");
    let ended = gate(dir.path(), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = "2 tasks, all valid; oracle as expected at 2 of 2 tasks; nop as expected at 2 of 2 tasks\n";
    assert!(ended.stdout.contains(line), "{}", ended.stdout);
}

#[test]
fn the_gate_stops_tasks_that_are_unsolvable_or_solved_by_doing_nothing() {
    let dir = tempfile::tempdir().unwrap();
    with_solution(dir.path(), "free", PASSES, "true");
    with_solution(dir.path(), "impossible", NEEDS_SOLUTION, "true");
    with_solution(dir.path(), "silent", "true", "true");
    with_solution(dir.path(), "good", NEEDS_SOLUTION, "touch done");
    task(dir.path(), "unsolved", NEEDS_SOLUTION);
    let needy = task(dir.path(), "needy", PASSES);
    fs::write(
        needy.join("task.toml"),
        "[environment]\ndocker_image = \"unused\"\n[verifier.env]\nKEY = \"${UNSET_IN_TEST}\"\n",
    )
    .unwrap();
    let ended = gate(dir.path(), &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for expected in [
        "tasks/free: error: agent nop has reward 1, expected less than 1 (logs: ",
        "tasks/impossible: error: agent oracle has reward 0, expected 1 (logs: ",
        "tasks/silent: error: agent oracle ended without a reward: ",
        "tasks/silent: error: agent nop ended without a reward: ",
        "tasks/unsolved/solution/solve.sh: error: missing, expected the solution that agent oracle runs",
        "tasks/needy/task.toml: error: 1 environment variable of this host is not set:",
        "; oracle as expected at 2 of 4 tasks; nop as expected at 2 of 4 tasks",
    ] {
        assert!(ended.stdout.contains(expected), "{expected}\n{}", ended.stdout);
    }
    let ended = gate(dir.path(), &["--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let free = report["tasks"].as_array().unwrap().iter().find(|task| task["dir"] == "tasks/free").unwrap();
    assert_eq!((&free["agents"][0]["agent"], &free["agents"][0]["reward"]), (&json!("oracle"), &json!(1.0)));
    assert!(free["agents"][1]["problem"].is_string(), "{free:#}");
}

/// Runs a job of all tasks in `tasks/`.
fn job(dir: &Path, more: &[&str]) -> Ended {
    run(dir, &[&["run", "-p", "tasks", "-a", "nop", "-e", "local", "-q", "--job-name", "it"], more].concat())
}

#[test]
fn all_bad_tasks_are_listed_before_a_job_starts() {
    let dir = tempfile::tempdir().unwrap();
    good_and_bad(dir.path());
    let ended = job(dir.path(), &[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let root = dir.path().canonicalize().unwrap().display().to_string();
    insta::assert_snapshot!(ended.stderr.replace(&root, "DIR"));
    assert!(!dir.path().join("jobs").exists());
}

#[test]
fn a_bad_task_does_not_stop_the_others_if_it_may_be_skipped() {
    let dir = tempfile::tempdir().unwrap();
    good_and_bad(dir.path());
    let ended = job(dir.path(), &["--skip-invalid"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("3 of 5 tasks are skipped:"), "{}", ended.stderr);
    assert_eq!(results(&dir.path().join("jobs/it")).len(), 2);
    let again = run(dir.path(), &["run", "--resume", "jobs/it", "-q"]);
    assert_eq!(again.code, Some(0), "the job has no bad task: {again:?}");
    for name in ["good", "näme with späces"] {
        fs::remove_dir_all(dir.path().join("tasks").join(name)).unwrap();
    }
    let ended = job(dir.path(), &["--skip-invalid", "--job-name", "none"]);
    assert_eq!(ended.code, Some(2), "no task is left: {ended:?}");
}

#[test]
fn a_task_that_changes_while_its_job_runs_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    let changing = dir.path().join("tasks/changing/instruction.md");
    let tests = format!("echo more >> '{}'; {PASSES}", changing.display());
    task(dir.path(), "changing", &tests);
    task(dir.path(), "steady", PASSES);
    let ended = job(dir.path(), &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("tasks/changing: its files changed while the job ran"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("tasks/steady:"), "{}", ended.stdout);
}

#[test]
fn all_missing_variables_of_the_host_are_one_error() {
    let dir = tempfile::tempdir().unwrap();
    for (name, key) in
        [("one", "verifier"), ("two", "verifier"), ("three", "environment"), ("oracles", "solution")]
    {
        let toml = format!(
            "[environment]\ndocker_image = \"unused\"\n[{key}.env]\nKEY = \"${{UNSET_{}}}\"\n",
            key.to_uppercase()
        );
        fs::write(task(dir.path(), name, PASSES).join("task.toml"), toml).unwrap();
    }
    let ended = job(dir.path(), &[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("2 environment variables of this host are not set:"), "{}", ended.stderr);
    assert!(ended.stderr.contains("  UNSET_ENVIRONMENT ("), "{}", ended.stderr);
    assert!(ended.stderr.contains("one/task.toml: verifier.env.KEY, "), "{}", ended.stderr);
    assert!(!ended.stderr.contains("SOLUTION"), "nop runs no solution: {}", ended.stderr);
    let args = ["run", "-p", "tasks", "-a", "nop", "-e", "local", "-q", "--job-name", "it"];
    let mut command = rolltap(dir.path(), &args);
    command.env("UNSET_VERIFIER", "x").env("UNSET_ENVIRONMENT", "y");
    let ended: Ended = command.output().unwrap().into();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let config = read(&dir.path().join("jobs/it/config.json"));
    assert_eq!(config["tasks"].as_array().unwrap().len(), 4);
}

#[test]
fn a_dry_run_shows_the_plan_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    with_solution(dir.path(), "built", NEEDS_SOLUTION, "touch done");
    let built = dir.path().join("tasks/built");
    fs::create_dir(built.join("environment")).unwrap();
    fs::write(built.join("environment/Dockerfile"), "FROM debian:bookworm\n").unwrap();
    fs::write(built.join("task.toml"), "").unwrap();
    with_solution(dir.path(), "ready", NEEDS_SOLUTION, "touch done");
    let root = dir.path().canonicalize().unwrap().display().to_string();
    let args = ["run", "-p", "tasks", "-k", "3", "--job-name", "it", "--dry-run"];
    let dry = |more: &[&str]| {
        // No engine is asked.
        let mut command = rolltap(dir.path(), &[&args[..], more].concat());
        let ended: Ended = command.env("DOCKER_HOST", "unix:///nowhere").output().unwrap().into();
        ended
    };
    let ended = dry(&["-a", "oracle"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    insta::assert_snapshot!(ended.stdout.replace(&root, "DIR"));
    let needy = task(dir.path(), "needy", PASSES);
    let toml = "[environment]\ndocker_image = \"unused\"\n[environment.env]\nKEY = \"${UNSET_IN_TEST}\"\n";
    fs::write(needy.join("task.toml"), toml).unwrap();
    let ended = dry(&["-a", "nop"]);
    assert_eq!(ended.code, Some(2), "the job would not start: {ended:?}");
    assert!(ended.stdout.contains("trials:      9 (3 tasks, 1 agent, 3 samples)"), "{}", ended.stdout);
    assert!(ended.stderr.contains("UNSET_IN_TEST"), "{}", ended.stderr);
    assert!(!dir.path().join("jobs").exists());
}

#[test]
fn the_printed_configuration_makes_the_same_job() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "one", "echo '{\"a\": 1, \"b\": 0.5}' > /logs/verifier/reward.json");
    let file = json!({"n_attempts": 2, "retry": {"max_retries": 1}, "rolltap": {"n_concurrent_per_task": 1}});
    fs::write(dir.path().join("job.yaml"), file.to_string()).unwrap();
    let flags = [
        "-c",
        "job.yaml",
        "-p",
        "tasks",
        "-a",
        "command",
        "--agent-command",
        "true",
        "--ae",
        "API_KEY=secret",
        "-e",
        "local",
        "-n",
        "3",
        "--reward",
        "a=0.5,b=1",
        "--sampling",
        "{\"temperature\": 0.5}",
        "-q",
        "--timeout-multiplier",
        "2",
        "--upstream-api-key",
        "secret",
        "--upstream",
        "http://127.0.0.1:9",
    ];
    let print = |args: &[&str]| {
        let ended = run(dir.path(), &[&["run"], args, &["--print-config"]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    };
    let printed = print(&flags);
    assert!(!printed.stdout.contains("\"secret\""), "{}", printed.stdout);
    assert!(printed.stderr.contains("the API key of the upstreams is not printed"), "{}", printed.stderr);
    insta::assert_snapshot!(printed.stdout);
    fs::write(dir.path().join("printed.yaml"), &printed.stdout).unwrap();
    assert_eq!(print(&["-c", "printed.yaml"]).stdout, printed.stdout, "it is a fixed point");
    assert!(!dir.path().join("jobs").exists());
}

#[test]
fn a_job_of_the_printed_configuration_has_the_same_record() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "one", "echo '{\"a\": 1, \"b\": 0.5}' > /logs/verifier/reward.json");
    let flags = ["-p", "tasks", "-a", "nop", "-e", "local", "-k", "2", "--reward", "a=0.5,b=1", "-q"];
    let printed = run(dir.path(), &[&["run"], &flags[..], &["--print-config"]].concat());
    fs::write(dir.path().join("printed.yaml"), &printed.stdout).unwrap();
    let record = |name: &str, args: &[&str]| {
        let ended = run(dir.path(), &[&["run", "--job-name", name], args].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let mut record = read(&dir.path().join("jobs").join(name).join("config.json"));
        record["job_name"].take();
        record["rolltap"]["job_id"].take();
        record
    };
    assert_eq!(record("flags", &flags), record("file", &["-c", "printed.yaml"]));
    let rewards = results(&dir.path().join("jobs/file"));
    assert!(rewards.iter().all(|result| result["rolltap"]["reward"] == 1.0), "{rewards:?}");
}
