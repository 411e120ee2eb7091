//! Jobs whose trials run on workers, each a process that may die, be paused, or be stopped.

mod bench;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rolltap_testing::until;
use serde_json::json;

use self::bench::{AGENT, Bench, json as read_json};

/// Returns the names of all files below a directory.
fn files(dir: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => drop(files.insert(path.strip_prefix(dir).unwrap().to_owned())),
            }
        }
    }
    files
}

/// Returns the attempts of each sample, each with whether its reward is valid.
fn attempts(bench: &Bench, job: &str) -> BTreeMap<u64, Vec<(u64, bool)>> {
    let mut attempts: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for dir in bench.trials(job) {
        let (config, result) = (read_json(&dir.join("config.json")), read_json(&dir.join("result.json")));
        let number = |key: &str| config["rolltap"][key].as_u64().unwrap();
        let is_valid = result["rolltap"]["reward_valid"].as_bool().unwrap();
        attempts.entry(number("sample_index")).or_default().push((number("attempt"), is_valid));
    }
    attempts.values_mut().for_each(|tried| tried.sort_unstable());
    attempts
}

#[test]
#[ignore = "needs NATS: run ./scripts/test"]
fn a_job_on_workers_ends_with_the_directory_of_a_job_on_one_machine() {
    let bench = Bench::start();
    let tasks = ["-p", "hello-file", "-p", "count-errors", "-a", "oracle", "-k", "3"];
    let mut here = bench.job("here", &tasks, false);
    assert!(here.ended().success(), "{}", here.said());
    let mut there = bench.job("there", &tasks, true);
    let workers = [bench.worker("one", 2, "local"), bench.worker("two", 2, "local,docker")];
    // The second worker may have no Docker, and then the first runs all trials.
    assert!(there.ended().success(), "{} {}", there.said(), workers[0].said());
    bench.check("there");
    let of_trials = |job: &str| bench.trials(job).iter().map(|dir| files(dir)).collect::<Vec<_>>();
    assert_eq!(of_trials("here"), of_trials("there"));
    let names = |job: &str| {
        let entries = std::fs::read_dir(bench.job_dir(job)).unwrap().map(|entry| entry.unwrap().path());
        let plain = entries.filter(|path| !path.is_dir());
        plain.map(|path| path.file_name().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names("here"), names("there"));
    for dir in bench.trials("there") {
        let result = read_json(&dir.join("result.json"));
        assert_eq!(result["rolltap"]["reward"], 1.0, "{result}");
        assert!(result["rolltap"]["proxy"]["completed_at"].is_string(), "the proxy has the reward: {result}");
        let place = result["trial_uri"].as_str().unwrap();
        assert!(place.ends_with(&format!("there/{}", dir.file_name().unwrap().display())), "{place}");
        let log = std::fs::read_to_string(dir.join("trial.log")).unwrap();
        assert_eq!(log.matches("runs on worker").count(), 1, "{log}");
        assert_eq!(log.matches("sealed after").count(), 1, "{log}");
    }
}

/// The record of tokens that an agent returns. It differs from the capture.
const TRAJECTORY: &str = r#"{"schema_version": "ATIF-v1.8", "trajectory_id": "it",
    "agent": {"name": "mine", "version": "1", "model_name": "sim"},
    "steps": [{"step_id": 1, "source": "agent", "message": "", "metrics":
        {"prompt_token_ids": [1, 2], "completion_token_ids": [3, 4], "logprobs": [-0.5, -0.25]}}]}"#;

#[test]
#[ignore = "needs NATS: run ./scripts/test"]
fn a_worker_whose_token_reads_nothing_looks_at_its_own_trials() {
    let bench = Bench::start();
    let worker = bench.worker("worker", 2, "local");
    let returned = bench.write("returned.json", TRAJECTORY);
    let call = AGENT.replace("GATE", &returned.display().to_string());
    let command = format!("{call}; cp '{}' /logs/agent/trajectory.json", returned.display());
    let arguments = ["-p", "hello-file", "-a", "command", "--agent-command", &command, "-k", "2"];
    let mut job = bench.job("own", &arguments, true);
    assert!(job.ended().success(), "{} {}", job.said(), worker.said());
    bench.check("own");
    let trials = bench.trials("own");
    assert_eq!(trials.len(), 2);
    for dir in &trials {
        let log = std::fs::read_to_string(dir.join("trial.log")).unwrap();
        assert!(!log.contains("not examined") && !log.contains("not compared"), "{log}");
        let result = read_json(&dir.join("result.json"));
        assert!(result["rolltap"]["returned"]["comparison"].is_object(), "{result}");
    }
    let audit = bench.audit();
    for route in ["/v1/trials/{id}/calls", "/v1/trials/{id}/answers"] {
        let reads: Vec<_> = audit.iter().filter(|record| record["route"] == route).collect();
        assert_eq!(reads.len(), 2, "{audit:?}");
        for read in reads {
            assert_eq!((&read["token"], &read["status"]), (&json!(null), &json!(200)), "{read}");
            assert_eq!(read["key_of_trial"], read["trial_id"], "{read}");
        }
    }
    let denied = audit.iter().filter(|record| record["denied"].is_string());
    let denied: Vec<_> = denied.map(|record| (&record["token"], &record["route"])).collect();
    assert_eq!(denied, [(&json!("worker"), &json!("/v1/upstreams"))], "only the greeting");
}

#[test]
#[ignore = "needs NATS: run ./scripts/test"]
fn trials_of_dead_and_paused_workers_run_again_elsewhere_and_count_once() {
    let bench = Bench::start();
    let mut job = bench.gated_job("faults", 6);
    let [mut dead, paused, alive] = ["dead", "paused", "alive"].map(|name| bench.worker(name, 2, "local"));
    bench.until_running("faults", 6);
    dead.kill();
    paused.send("STOP");
    let log = bench.job_dir("faults").join("job.log");
    until("four attempts that are lost", || {
        std::fs::read_to_string(&log).unwrap().matches("is tried again").count() == 4
    });
    bench.open_gate("faults");
    assert!(job.ended().success(), "{} {}", job.said(), alive.said());
    paused.send("CONT");
    paused.until_said("its result does not count", 2);
    bench.check("faults");
    let attempts = attempts(&bench, "faults");
    assert_eq!(attempts.len(), 6);
    let (once, again): (Vec<_>, Vec<_>) = attempts.values().partition(|tried| tried.len() == 1);
    assert_eq!((once.len(), again.len()), (2, 4), "{attempts:?}");
    assert!(once.iter().all(|tried| **tried == [(0, true)]), "{attempts:?}");
    assert!(again.iter().all(|tried| **tried == [(0, false), (1, true)]), "{attempts:?}");
    let rows = std::fs::read_to_string(bench.job_dir("faults").join("rollouts.jsonl")).unwrap();
    assert_eq!(rows.lines().count(), 6, "one row for each sample: {rows}");
}

#[test]
#[ignore = "needs NATS: run ./scripts/test"]
fn trials_continue_while_their_job_is_dead_and_the_resumed_job_takes_them() {
    let bench = Bench::start();
    let mut job = bench.gated_job("resumed", 5);
    let worker = bench.worker("worker", 2, "local");
    bench.until_running("resumed", 2);
    job.kill();
    bench.open_gate("resumed");
    // The trials in the queue need no job either.
    worker.until_said("trial ended with reward", 5);
    let mut job = bench.resumed("resumed");
    assert!(job.ended().success(), "{} {}", job.said(), worker.said());
    bench.check("resumed");
    let attempts = attempts(&bench, "resumed");
    assert_eq!(attempts.len(), 5);
    assert!(attempts.values().all(|tried| *tried == [(0, true)]), "{attempts:?}");
    assert_eq!(worker.said().matches("trial begins").count(), 5, "no trial ran twice");
}

#[test]
#[ignore = "needs NATS: run ./scripts/test"]
fn a_stopped_job_frees_its_workers_and_a_drained_worker_ends_what_it_has() {
    let bench = Bench::start();
    let mut job = bench.gated_job("stopped", 4);
    let mut worker = bench.worker("worker", 2, "local");
    bench.until_running("stopped", 2);
    job.send("INT");
    assert_eq!(job.ended().code(), Some(1), "{}", job.said());
    worker.until_said("CancelledError", 2);
    assert_eq!(worker.said().matches("trial begins").count(), 2, "the others are withdrawn");

    let mut next = bench.gated_job("next", 2);
    bench.until_running("next", 2);
    worker.send("TERM");
    worker.until_said("draining", 1);
    bench.open_gate("next");
    assert!(next.ended().success(), "{} {}", next.said(), worker.said());
    assert!(worker.ended().success(), "{}", worker.said());

    // A second signal gives the trials back.
    let mut last = bench.gated_job("last", 1);
    let (mut first, mut second) = (bench.worker("first", 1, "local"), None);
    bench.until_running("last", 1);
    first.send("TERM");
    first.until_said("draining", 1);
    first.send("TERM");
    assert!(first.ended().success(), "{}", first.said());
    bench.open_gate("last");
    let _second = second.insert(bench.worker("second", 1, "local"));
    assert!(last.ended().success(), "{}", last.said());
    assert_eq!(attempts(&bench, "last")[&0], [(0, false), (1, true)]);
}

#[test]
#[ignore = "needs NATS: run ./scripts/test"]
fn what_workers_cannot_run_is_said_with_its_reason() {
    let bench = Bench::start();
    let refused = ["-p", "hello-file", "-a", "command", "--agent-command", "true", "--ae", "TOKEN=secret"];
    let mut job = bench.job("refused", &refused, true);
    let worker = bench.worker("worker", 1, "local");
    assert_eq!(job.ended().code(), Some(1), "{} {}", job.said(), worker.said());
    assert!(job.said().contains("TOKEN") && !job.said().contains("secret"), "{}", job.said());
    assert!(worker.said().contains("TOKEN"), "{}", worker.said());

    let mut harbor = bench.job("harbor", &["-p", "hello-file", "-a", "oracle", "-e", "harbor"], true);
    assert_eq!(harbor.ended().code(), Some(2), "{}", harbor.said());
    assert!(harbor.said().contains("not in harbor"), "{}", harbor.said());
    let waiting = bench.job("waiting", &["-p", "hello-file", "-a", "oracle", "-e", "docker"], true);
    waiting.until_said("no worker takes trials in docker", 1);
    waiting.send("INT");
    let busy = bench.worker("worker", 1, "local");
    busy.until_said("give each a --dir of its own", 1);
}
