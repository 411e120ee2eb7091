//! The leftovers of a killed run, and the command that removes them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rolltap_testing::limit;
use serde_json::Value;

use crate::program::{Job, text};

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn what_a_killed_run_left_is_listed_and_removed_and_what_a_living_one_has_is_not() {
    let task = tempfile::tempdir().unwrap();
    endless_task(task.path());
    let (dead, living) = (Job::new("to-clean"), Job::new("not-to-clean"));
    // The live job starts first, because a starting job removes the leftovers of dead ones.
    let (mut goes_on, mut killed) = (start(&living, task.path()), start(&dead, task.path()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = |fate: &str| vec![format!("container {fate}"); 2];
    assert_eq!(of_job(&clean(&["--dry-run"]), &dead.name), left("would_be_removed"));
    // Networks are removed too, but the live job's containers are on one.
    let cleaned = clean(&["--networks"]);
    assert_eq!(of_job(&cleaned, &dead.name), left("removed"));
    assert_eq!(of_job(&cleaned, &living.name), left("kept"));
    assert!(shared_networks(&cleaned).iter().all(|fate| *fate == "kept"), "{cleaned}");
    assert!(!shared_networks(&cleaned).is_empty(), "{cleaned}");
    assert_eq!(dead.left_in_docker(), Vec::<String>::new());
    assert_eq!(of_job(&clean(&[]), &dead.name), Vec::<String>::new());

    assert!(Command::new("kill").args(["-INT", &goes_on.id().to_string()]).status().unwrap().success());
    goes_on.wait().unwrap();
    assert_eq!(living.left_in_docker(), Vec::<String>::new());
}

/// Makes a task whose solution never ends.
fn endless_task(dir: &Path) {
    let image = std::env::var("ROLLTAP_TESTBED_PREBUILT").unwrap();
    for (name, text) in [
        ("task.toml", format!("[environment]\ndocker_image = \"{image}\"\n")),
        ("instruction.md", "Wait.".to_owned()),
        ("tests/test.sh", "#!/bin/sh\n".to_owned()),
        ("solution/solve.sh", "#!/bin/sh\nsleep 1000\n".to_owned()),
    ] {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Starts a run and waits until its two containers exist.
fn start(job: &Job, task: &Path) -> Child {
    let mut command = job.command(&["-a", "oracle", "-k", "2", "-p"]);
    let mut child = command.arg(task).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + limit(60);
    let containers = || job.left_in_docker().len() == 2;
    while !containers() {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < end, "no containers of {}", job.name);
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

fn clean(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
    let output = command.args(["clean", "--json"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the fate of each network that all jobs share.
fn shared_networks(found: &Value) -> Vec<&str> {
    let found = found["found"].as_array().unwrap().iter();
    let shared = found.filter(|item| item["kind"] == "network" && item["owner"].is_null());
    shared.map(|item| item["fate"].as_str().unwrap()).collect()
}

/// Returns the kind and the fate of everything that belongs to this job, sorted.
fn of_job(found: &Value, job: &str) -> Vec<String> {
    let found = found["found"].as_array().unwrap().iter().filter(|item| item["job"] == job);
    let mut words: Vec<_> = found
        .map(|item| format!("{} {}", item["kind"].as_str().unwrap(), item["fate"].as_str().unwrap()))
        .collect();
    words.sort();
    words
}
