//! `rolltap demo`, and `rolltap check` on its output.

use std::fs;
use std::path::Path;
use std::time::Instant;

use rolltap_testing::limit;
use serde_json::Value;

use super::program::{json, run};

#[test]
fn the_demo_runs_and_its_rollouts_are_sound() {
    let dir = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let ended = run(dir.path(), &["demo", "--job-name", "demo"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(began.elapsed() < limit(60), "{:?}", began.elapsed());
    let job = dir.path().join("jobs/demo");
    for file in ["rollouts.jsonl", "rollouts.parquet", "config.json", "result.json", "job.log", "data"] {
        assert!(job.join(file).exists(), "{file}");
    }
    let jsonl = job.join("rollouts.jsonl").canonicalize().unwrap();
    assert!(ended.stdout.contains("rollouts: jobs/demo/rollouts.jsonl\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("\nnext steps:\n  rolltap check jobs/demo\n"), "{}", ended.stdout);
    assert!(!ended.stderr.contains("WARN"), "{}", ended.stderr);
    some_pass_and_some_fail(&jsonl);
    trials_are_laid_out_as_harbors(&job);

    let checked = run(dir.path(), &["check", "jobs/demo"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    forged_rewards_and_masks_are_found(dir.path(), &jsonl);
}

fn rows(jsonl: &Path) -> Vec<Value> {
    fs::read_to_string(jsonl).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn some_pass_and_some_fail(jsonl: &Path) {
    let rows = rows(jsonl);
    for task in ["rolltap/hello-file", "rolltap/count-errors"] {
        let of_task: Vec<_> = rows.iter().filter(|row| row["task_id"] == task).collect();
        assert_eq!(of_task.len(), 4, "one branch for each sample of {task}");
        let rewards: Vec<_> = of_task.iter().map(|row| row["reward"].as_f64().unwrap()).collect();
        assert!(rewards.contains(&1.0) && rewards.contains(&0.0), "{task}: {rewards:?}");
        for (sample, row) in of_task.iter().enumerate() {
            assert_eq!(row["group_id"], format!("demo/{task}"));
            assert_eq!((&row["group_size"], &row["sample_index"]), (&4.into(), &sample.into()));
        }
    }
}

fn trials_are_laid_out_as_harbors(job: &Path) {
    let result = json(&job.join("result.json"));
    assert_eq!(result["n_total_trials"], 8);
    assert_eq!(result["stats"]["n_completed_trials"], 8);
    let trials: Vec<_> = job.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let trials: Vec<_> = trials.iter().filter(|path| path.join("result.json").exists()).collect();
    assert_eq!(trials.len(), 8);
    for trial in trials {
        for file in ["config.json", "trial.log", "agent/transcript.json", "verifier", "artifacts"] {
            assert!(trial.join(file).exists(), "{}: {file}", trial.display());
        }
        let result = json(&trial.join("result.json"));
        assert!(result["verifier_result"]["rewards"]["reward"].is_number(), "{result}");
        assert!(result["agent_execution"]["finished_at"].is_string(), "{result}");
    }
}

/// A check that accepts wrong rows would be worthless.
fn forged_rewards_and_masks_are_found(dir: &Path, jsonl: &Path) {
    let mut rows = rows(jsonl);
    let first = rows[0]["token_ids"][0].as_i64().unwrap();
    rows[0]["token_ids"][0] = (first + 1).into();
    let forged: String = rows.iter().map(|row| format!("{row}\n")).collect();
    fs::write(jsonl, forged).unwrap();
    let checked = run(dir, &["check", "jobs/demo"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let trial = rows[0]["trial_id"].as_str().unwrap();
    assert!(checked.stdout.contains(trial), "{checked:?}");
    assert!(checked.stdout.contains("differs between rollouts.jsonl and rollouts.parquet"), "{checked:?}");
}
