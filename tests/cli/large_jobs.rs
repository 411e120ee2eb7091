//! Jobs of very many trials: absurd numbers are rejected, and large jobs start without a delay.

use std::path::Path;

use rolltap_testing::{limit, until};

use super::jobs::task;
use super::program::Running;

/// Starts a job of this many samples of one task, whose tests never end.
fn start(dir: &Path, samples: &str) -> Running {
    let task = task(dir, "one", "exec sleep 1000");
    let task = task.to_str().unwrap();
    let args = ["run", "-p", task, "-a", "nop", "-e", "local", "-k", samples, "-n", "1", "--job-name", "it"];
    Running::start(dir, &args)
}

#[test]
fn a_plan_that_cannot_be_meant_is_refused_at_once_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stderr) = start(dir.path(), "1000000").wait(limit(10));
    assert_eq!(code, Some(2), "{stderr}");
    let asked = "1 task, 1 agent and 1000000 samples make 1000000 trials";
    assert!(stderr.contains(asked), "what was asked: {stderr}");
    assert!(stderr.contains("at most 100000"), "what the limit is: {stderr}");
    assert!(stderr.contains("-k"), "what to do: {stderr}");
    assert!(!dir.path().join("jobs").exists(), "nothing is left");
}

#[test]
fn the_largest_job_begins_soon_needs_little_memory_and_heeds_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let job = start(dir.path(), "100000");
    let trials = || dir.path().join("jobs/it").read_dir().into_iter().flatten().flatten();
    until("a trial begins", || trials().any(|entry| entry.path().join("trial.log").exists()));
    let peak = job.peak_memory_mib();
    assert!(peak < 150, "{peak} MiB");
    job.signal("INT");
    let (code, stderr) = job.wait(limit(10));
    assert_eq!(code, Some(1), "{stderr}");
}

#[test]
fn a_large_job_that_was_stopped_goes_on_as_soon() {
    let dir = tempfile::tempdir().unwrap();
    let trials = || dir.path().join("jobs/it").read_dir().into_iter().flatten().flatten();
    for times in 1..=2 {
        let job = start(dir.path(), "100000");
        let begun = || trials().filter(|entry| entry.path().join("trial.log").exists()).count();
        until("another attempt begins", || begun() == times);
        let peak = job.peak_memory_mib();
        assert!(peak < 150, "{peak} MiB");
        job.signal("INT");
        let (code, stderr) = job.wait(limit(10));
        assert_eq!(code, Some(1), "{stderr}");
    }
    let result = super::program::json(&dir.path().join("jobs/it/result.json"));
    assert_eq!(result["n_total_trials"], 100_000, "{}", result["stats"]);
}
