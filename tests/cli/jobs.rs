//! Jobs from files: several agents and datasets, retries, events for machines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::program::{Ended, Running, repository, rolltap, run};

pub(crate) fn read(path: &Path) -> Value {
    super::program::json(path)
}

/// Returns the results of all trials of a job, earlier attempts included.
pub(crate) fn results(job: &Path) -> Vec<Value> {
    let entries = job.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let trials = entries.filter(|path| path.join("trial.log").exists());
    trials.map(|trial| read(&trial.join("result.json"))).collect()
}

/// Makes a task in `tasks/` whose tests are this script.
pub(crate) fn task(dir: &Path, name: &str, test: &str) -> PathBuf {
    let task = dir.join("tasks").join(name);
    fs::create_dir_all(task.join("tests")).unwrap();
    fs::write(task.join("task.toml"), "[environment]\ndocker_image = \"unused\"\n").unwrap();
    fs::write(task.join("instruction.md"), "Do it.").unwrap();
    fs::write(task.join("tests/test.sh"), format!("#!/bin/sh\n{test}\n")).unwrap();
    task
}

/// Runs `rolltap run -c` of this file in the local environment. The job is named `it`.
fn run_file(dir: &Path, file: &Value, more: &[&str]) -> Ended {
    let mut file = file.clone();
    file["job_name"] = json!("it");
    file["rolltap"] = json!({"environment": "local"});
    fs::write(dir.join("job.yaml"), file.to_string()).unwrap();
    run(dir, &[&["run", "-c", "job.yaml", "-q"], more].concat())
}

#[test]
fn every_agent_works_at_every_task_as_often_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let file = json!({
        "n_attempts": 2,
        "agents": [{"name": "oracle"}, {"name": "nop"}],
        "datasets": [{"path": repository("examples/tasks"), "task_names": ["hello-*"]}],
        "metrics": [{"type": "mean"}, {"type": "sum"}],
    });
    let ended = run_file(dir.path(), &file, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let job = dir.path().join("jobs/it");
    let result = read(&job.join("result.json"));
    let stats = &result["stats"];
    assert_eq!((&result["n_total_trials"], &stats["n_completed_trials"]), (&json!(4), &json!(4)), "{result}");
    for (key, mean, passed) in [("oracle__tasks", 1.0, 2), ("nop__tasks", 0.0, 0)] {
        let evals = &stats["evals"][key];
        assert_eq!(evals["metrics"], json!([{"mean": mean}, {"sum": f64::from(passed)}]), "{key}: {evals}");
        assert_eq!(evals["pass_at_k"], json!({"2": mean}), "{key}");
        assert_eq!(evals["n_trials"], 2);
    }
    let mut groups: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for trial in results(&job) {
        let own = &trial["config"]["rolltap"];
        let group = own["group_id"].as_str().unwrap().to_owned();
        groups.entry(group).or_default().insert(own["sample_index"].as_u64().unwrap());
    }
    assert_eq!(groups.len(), 2, "one per agent and task: {groups:?}");
    assert!(groups.values().all(|samples| *samples == BTreeSet::from([0, 1])), "{groups:?}");
}

#[test]
fn flags_count_before_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let other = task(dir.path(), "other", "echo 0.5 > /logs/verifier/reward.txt");
    let file = json!({"n_attempts": 3, "agents": [{"name": "oracle"}], "datasets": [{"path": repository("examples/tasks")}]});
    let ended = run_file(dir.path(), &file, &["-k", "1", "-a", "nop", "-p", other.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let trials = results(&dir.path().join("jobs/it"));
    assert_eq!(trials.len(), 1);
    assert_eq!((&trials[0]["agent_info"]["name"], &trials[0]["task_name"]), (&json!("nop"), &json!("other")));
    let config = read(&dir.path().join("jobs/it/config.json"));
    assert_eq!(config["n_attempts"], 1, "what ran is what is recorded");
}

#[test]
fn unsupported_settings_are_reported_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let file = json!({"tasks": [{"path": repository("examples/tasks/hello-file")}], "install_only": true});
    let ended = run_file(dir.path(), &file, &[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("install_only = true"), "{}", ended.stderr);
    assert!(!dir.path().join("jobs").exists());
}

#[test]
fn settings_without_support_in_the_environment_are_reported_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let mount = json!([{"type": "bind", "source": "/srv", "target": "/in"}]);
    for (environment, what) in
        [(json!({"mounts": mount}), "a mount at /in"), (json!({"delete": false}), "`delete: false`")]
    {
        let tasks = json!([{"path": repository("examples/tasks/hello-file")}]);
        let ended = run_file(dir.path(), &json!({"tasks": tasks, "environment": environment}), &[]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let told = format!("cannot honour what the job adds: {what}, as it has no containers");
        assert!(ended.stderr.contains(&told), "{}", ended.stderr);
        assert!(!dir.path().join("jobs").exists());
    }
}

#[test]
fn tests_that_are_switched_off_leave_no_reward_and_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt");
    let file = json!({"tasks": [{"path": task}], "agents": [{"name": "nop"}], "verifier": {"disable": true}});
    let ended = run_file(dir.path(), &file, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let trial = results(&dir.path().join("jobs/it")).remove(0);
    assert_eq!((&trial["verifier_result"], &trial["exception_info"]), (&Value::Null, &Value::Null));
}

#[test]
fn instructions_and_variables_of_the_job_reach_every_trial() {
    let dir = tempfile::tempdir().unwrap();
    let task =
        task(dir.path(), "one", "[ \"$MODE$WORD\" = fastsesame ] && echo 1 > /logs/verifier/reward.txt");
    fs::write(dir.path().join("more.md"), "From a file.").unwrap();
    let file = json!({
        "tasks": [{"path": task}],
        "agents": [{"name": "nop"}],
        "extra_instruction_paths": ["more.md"],
        "extra_instructions": ["And by itself."],
        "environment": {"env": {"MODE": "fast"}},
        "verifier": {"env": {"WORD": "${UNSET_HERE:-sesame}"}},
    });
    let ended = run_file(dir.path(), &file, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let config = read(&dir.path().join("jobs/it/config.json"));
    assert_eq!(config["extra_instructions"], json!(["From a file.", "And by itself."]));
    assert_eq!(config["verifier"]["env"]["WORD"], "${UNSET_HERE:-sesame}", "the reference, not the value");
}

/// Returns a test script that writes no reward the first time.
fn shy(dir: &Path) -> String {
    format!("mkdir {}/seen 2> /dev/null || echo 1 > /logs/verifier/reward.txt", dir.display())
}

#[test]
fn a_retry_is_a_new_attempt_that_counts_instead() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "shy", &shy(dir.path()));
    let file = json!({
        "tasks": [{"path": task}],
        "agents": [{"name": "nop"}],
        "retry": {"max_retries": 2, "min_wait_sec": 0.01, "exclude_exceptions": []},
    });
    let ended = run_file(dir.path(), &file, &["--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let job = dir.path().join("jobs/it");
    let mut trials = results(&job);
    trials.sort_by_key(|trial| trial["config"]["rolltap"]["attempt"].as_u64());
    let [first, second] = &trials[..] else { panic!("{} trials", trials.len()) };
    assert_eq!(
        first["exception_info"]["exception_type"], "RewardFileNotFoundError",
        "its evidence is stored"
    );
    assert_eq!(second["verifier_result"]["rewards"]["reward"], 1.0);
    assert_ne!(first["trial_name"], second["trial_name"]);
    let stats = read(&job.join("result.json"))["stats"].clone();
    assert_eq!((&stats["n_completed_trials"], &stats["n_errored_trials"]), (&json!(1), &json!(0)), "{stats}");
    assert_eq!(stats["n_retries"], 1);
    let events: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends: Vec<_> = events.iter().filter(|event| event["event"] == "trial_ended").collect();
    assert_eq!((&ends[0]["retried"], &ends[1]["retried"]), (&json!(true), &json!(false)));
    assert_eq!((&ends[0]["attempt"], &ends[1]["attempt"]), (&json!(0), &json!(1)));
}

#[test]
fn what_the_agent_did_to_itself_and_what_is_excluded_is_not_tried_again() {
    for (retry, command, expected) in [
        (json!({"max_retries": 3, "exclude_exceptions": []}), "exit 3", "NonZeroAgentExitCodeError"),
        (json!({"max_retries": 3}), "true", "RewardFileNotFoundError"),
        (
            json!({"max_retries": 3, "exclude_exceptions": [], "include_exceptions": ["X"]}),
            "true",
            "RewardFileNotFoundError",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0"]);
        let task = task(dir.path(), "one", "true");
        let agent = json!({"name": "command", "kwargs": {"command": command}, "base_url": sim.next_url()});
        let file = json!({"tasks": [{"path": task}], "agents": [agent], "retry": retry});
        let ended = run_file(dir.path(), &file, &[]);
        let trials = results(&dir.path().join("jobs/it"));
        assert_eq!(trials.len(), 1, "{expected}: {ended:?}");
        assert_eq!(trials[0]["exception_info"]["exception_type"], expected);
    }
}

#[test]
fn machines_get_each_event_on_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt");
    let args =
        ["run", "-p", task.to_str().unwrap(), "-a", "nop", "-e", "local", "--job-name", "it", "--json"];
    let ended = run(dir.path(), &args);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let events: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    let phases = names.iter().filter(|name| **name == "trial_phase").count();
    assert!(phases >= 4, "{names:?}");
    let others: Vec<_> = names.into_iter().filter(|name| *name != "trial_phase").collect();
    assert_eq!(others, ["job_started", "trial_started", "trial_ended", "job_ended"]);
    assert!(events.iter().all(|event| event["at"].is_string()));
    let last = events.last().unwrap();
    assert_eq!((&last["clean"], &last["trials"]), (&json!(true), &json!(1)), "{last}");
    assert!(ended.stderr.contains("mean reward"), "people read it on standard error: {}", ended.stderr);
}

#[test]
fn a_task_from_git_is_fetched_and_recorded_by_its_version() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt");
    let git = |args: &[&str]| {
        let name = ["-c", "user.name=t", "-c", "user.email=t@t"];
        let done = Command::new("git").args(name).args(args).current_dir(dir.path().join("tasks")).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "tasks"]);
    let commit = git(&["rev-parse", "HEAD"]);
    let url = format!("file://{}/tasks", dir.path().display());
    let file = json!({
        "tasks": [{"path": "one", "git_url": url}],
        "agents": [{"name": "nop"}],
        "job_name": "it",
        "rolltap": {"environment": "local"},
    });
    fs::write(dir.path().join("job.json"), file.to_string()).unwrap();
    let mut command = rolltap(dir.path(), &["run", "-c", "job.json", "-q"]);
    let ended: Ended = command.env("XDG_CACHE_HOME", dir.path().join("cache")).output().unwrap().into();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let trial = results(&dir.path().join("jobs/it")).remove(0);
    assert_eq!(trial["task_id"], json!({"git_url": url, "git_commit_id": commit, "path": "one"}));
    assert_eq!(trial["task_name"], "one");
}
