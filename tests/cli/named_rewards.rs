//! Named rewards without one called `reward`: none of them is trained on, and the user gets a warning.

use std::path::Path;

use serde_json::{Value, json};

use super::jobs::{results, task};
use super::program::{Ended, run};

/// Runs two samples of a task whose tests write this `reward.json`.
fn judged(dir: &Path, rewards: &str, more: &[&str]) -> Ended {
    let task = task(dir, "one", &format!("echo '{rewards}' > /logs/verifier/reward.json"));
    let task = task.to_str().unwrap();
    let args = ["run", "-p", task, "-a", "nop", "-e", "local", "-k", "2", "-n", "1", "--job-name", "it"];
    run(dir, &[&args[..], more].concat())
}

#[test]
fn several_rewards_of_which_none_is_the_reward_are_shown_and_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let ended = judged(dir.path(), r#"{"correctness": 1, "speed": 0.5}"#, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let warning = "warning: 2 trials have rewards correctness and speed and none named \"reward\"";
    assert!(ended.stdout.contains(warning), "in the summary: {}", ended.stdout);
    assert!(ended.stdout.contains("--reward correctness"), "with a way out: {}", ended.stdout);
    assert!(ended.stdout.contains("correctness 1, speed 0.5"), "in the table: {}", ended.stdout);
    let lines = ended.stderr.lines().filter(|line| line.contains("reward none (correctness 1, speed 0.5)"));
    assert_eq!(lines.count(), 2, "as each trial ends: {}", ended.stderr);
    let warnings = ended.stderr.lines().filter(|line| line.starts_with("warning: ")).count();
    assert_eq!(warnings, 1, "while the job runs, once: {}", ended.stderr);
    let log = std::fs::read_to_string(dir.path().join("jobs/it/job.log")).unwrap();
    assert!(log.contains("but no entry is named \"reward\": correctness 1, speed 0.5"), "{log}");
    for result in results(&dir.path().join("jobs/it")) {
        assert_eq!(result["rolltap"]["reward"], Value::Null, "nothing is made up");
    }
}

#[test]
fn machines_get_every_named_reward() {
    let dir = tempfile::tempdir().unwrap();
    let ended = judged(dir.path(), r#"{"correctness": 1, "speed": 0.5}"#, &["--json"]);
    let events = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rewards: Vec<_> = events.filter(|event| event["event"] == "trial_ended").collect();
    assert!(!rewards.is_empty());
    for event in rewards {
        assert_eq!(event["reward"], Value::Null);
        assert_eq!(event["rewards"], json!({"correctness": 1.0, "speed": 0.5}), "{event}");
    }
}

#[test]
fn a_verdict_without_any_number_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let ended = judged(dir.path(), "{}", &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("warning: the tests of 2 trials left no number"), "{}", ended.stdout);
}

#[test]
fn one_reward_of_any_name_is_the_reward() {
    let dir = tempfile::tempdir().unwrap();
    let ended = judged(dir.path(), r#"{"correctness": 1}"#, &[]);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!said.contains("warning"), "{said}");
    assert!(results(&dir.path().join("jobs/it")).iter().all(|result| result["rolltap"]["reward"] == 1.0));
}
