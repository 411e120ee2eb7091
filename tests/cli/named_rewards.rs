//! Named rewards without one called `reward`: none of them is trained on, and the user gets a warning.

use std::path::Path;

use serde_json::{Value, json};

use super::jobs::{self, results, task};
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

const BOTH: &str = r#"{"correctness": 1, "speed": 0.5}"#;

/// Returns the number to train on of each trial of the job.
fn numbers(dir: &Path) -> Vec<Value> {
    results(&dir.join("jobs/it")).iter().map(|result| result["rolltap"]["reward"].clone()).collect()
}

#[test]
fn a_rule_makes_the_number_to_train_on() {
    for (rule, number) in [("speed", 0.5), ("mean", 0.75), ("sum", 1.5), ("correctness=0.5,speed=-1", 0.0)] {
        let dir = tempfile::tempdir().unwrap();
        let ended = judged(dir.path(), BOTH, &["--reward", rule]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!said.contains("warning"), "{rule}: {said}");
        assert_eq!(numbers(dir.path()), [number, number], "{rule}");
        for result in results(&dir.path().join("jobs/it")) {
            assert_eq!(result["verifier_result"]["rewards"], json!({"correctness": 1.0, "speed": 0.5}));
            assert_eq!(result["config"]["rolltap"]["reward"], rule);
        }
        assert_eq!(jobs::read(&dir.path().join("jobs/it/config.json"))["rolltap"]["reward"], rule);
    }
}

#[test]
fn a_rule_that_makes_no_number_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let ended = judged(dir.path(), BOTH, &["--reward", "style"]);
    assert_eq!(numbers(dir.path()), [Value::Null, Value::Null], "a missing reward is not a reward of 0");
    let warning =
        "warning: 2 trials have rewards correctness and speed, of which the rule \"style\" makes no number";
    assert!(ended.stdout.contains(warning), "{}", ended.stdout);
}

#[test]
fn a_wrong_rule_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let ended = judged(dir.path(), BOTH, &["--reward", "correctness,speed"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let expected = "expected the name of a reward, mean, sum, or NAME=WEIGHT,NAME=WEIGHT…; \"correctness\" has no weight";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    assert!(!dir.path().join("jobs").exists());
}

/// The job file of two tasks with both rewards, and these rules.
fn two_tasks(dir: &Path, rules: &Value) -> Ended {
    for name in ["speed-one", "other"] {
        task(dir, name, &format!("echo '{BOTH}' > /logs/verifier/reward.json"));
    }
    let mut own = rules.clone();
    own["environment"] = json!("local");
    let file = json!({
        "job_name": "it",
        "datasets": [{"path": "tasks"}],
        "agents": [{"name": "nop"}],
        "rolltap": own,
    });
    std::fs::write(dir.join("job.yaml"), file.to_string()).unwrap();
    run(dir, &["run", "-c", "job.yaml", "-q"])
}

#[test]
fn a_task_may_have_a_rule_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let rules = json!({"reward": "correctness", "task_rewards": {"speed-*": "speed"}});
    let ended = two_tasks(dir.path(), &rules);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for result in results(&dir.path().join("jobs/it")) {
        let expected = if result["task_name"] == "speed-one" { 0.5 } else { 1.0 };
        assert_eq!(result["rolltap"]["reward"], expected, "{}", result["task_name"]);
    }
}

#[test]
fn a_rule_for_a_task_that_does_not_exist_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let ended = two_tasks(dir.path(), &json!({"task_rewards": {"othr": "speed"}}));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let expected = "task_rewards: no task of the job matches \"othr\" (did you mean \"other\"?)";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

#[test]
fn a_job_with_another_rule_is_not_resumed() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(judged(dir.path(), BOTH, &["--reward", "speed"]).code, Some(0));
    let ended = judged(dir.path(), BOTH, &["--reward", "mean"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("rolltap.reward = \"speed\""), "{}", ended.stderr);
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
