//! Harbor's rules, row by row: Harbor's oracle and rolltap's solve the same task directories in Docker.

mod rows;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use rolltap_testing::sample;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::testbed;
use crate::program::{Job, text};
use rows::{Row, rows};

/// The outcome of a trial, in the fields that both programs report.
#[derive(Debug)]
struct Seen {
    rewards: Value,
    exception: Value,
    verified: bool,
    /// Name, rewards and exception of each step.
    steps: Value,
    manifest: Value,
}

/// Runs all rows with rolltap. Harbor takes seconds of a core for each, so it runs all rows in the long tier, and every
/// third in the default one.
#[test]
#[ignore = "needs Docker and Harbor: run ./scripts/test"]
fn every_row_of_harbors_reward_table_is_as_with_harbor() {
    let rows = rows(&testbed("ROLLTAP_TESTBED_IMAGE"));
    let folder = TempDir::new().unwrap();
    let tasks = folder.path().join("tasks");
    rows.iter().for_each(|row| write(&tasks.join(row.name), row));
    let job = Job::new("reward-table");
    let with_harbor = folder.path().join("with-harbor");
    let sampled: Vec<&Row> = rows.iter().step_by(sample(3, 1)).collect();
    sampled.iter().for_each(|row| write(&with_harbor.join(row.name), row));
    let trials = folder.path().join("trials");
    let (ours, harbors) = std::thread::scope(|threads| {
        let harbors = threads.spawn(|| harbors(&with_harbor, &trials));
        (ours(&job, &tasks), harbors.join().unwrap())
    });
    let mut wrong = Vec::new();
    for row in &rows {
        let ours = &ours[row.name];
        let told = (&ours.rewards, &ours.exception, ours.verified);
        let expected = (&row.rewards, &json!(row.exception), row.verified);
        if told != expected {
            wrong.push(format!("{}: expected {expected:?}, ours {ours:?}", row.name));
        }
    }
    for row in sampled {
        let (ours, harbor) = (&ours[row.name], &harbors[row.name]);
        if !row.is_as(ours, harbor) {
            wrong.push(format!("{}: Harbor {harbor:?}\n    ours {ours:?}", row.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

fn write(dir: &Path, row: &Row) {
    let scripts = [("solution/solve.sh", &row.solve), ("tests/test.sh", &row.test)];
    let scripts = scripts.map(|(name, body)| (name, format!("#!/bin/bash\n{body}\n")));
    let files = row.files.iter().map(|(name, contents)| (*name, contents.clone()));
    let basic = [("task.toml", row.toml.clone()), ("instruction.md", "Do it.\n".to_owned())];
    for (name, contents) in basic.into_iter().chain(scripts).chain(files) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    fs::create_dir_all(dir.join("environment")).unwrap();
}

fn ours(job: &Job, tasks: &Path) -> BTreeMap<String, Seen> {
    let tasks = tasks.display().to_string();
    let output = job.command(&["-p", &tasks, "-a", "oracle", "-e", "docker", "-n", "4"]).output().unwrap();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "rows fail through no fault of an agent: {said}");
    let trials = job.dir().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let trials = trials.filter(|path| path.join("result.json").exists());
    trials.map(|trial| seen_by_us(&trial)).collect()
}

fn seen_by_us(trial: &Path) -> (String, Seen) {
    let read =
        |name: &str| fs::read(trial.join(name)).ok().map(|json| serde_json::from_slice(&json).unwrap());
    let result: Value = read("result.json").unwrap();
    let steps = result["step_results"].as_array().cloned().unwrap_or_default();
    let step = |step: &Value| {
        json!([
            step["step_name"],
            step["verifier_result"]["rewards"],
            step["exception_info"]["exception_type"]
        ])
    };
    let seen = Seen {
        rewards: as_floats(&result["verifier_result"]["rewards"]),
        exception: result["exception_info"]["exception_type"].clone(),
        verified: !result["verifier"].is_null(),
        steps: steps.iter().map(step).collect(),
        manifest: read("artifacts/manifest.json").unwrap_or_default(),
    };
    (result["task_name"].as_str().unwrap().to_owned(), seen)
}

fn harbors(tasks: &Path, trials: &Path) -> BTreeMap<String, Seen> {
    fs::create_dir(trials).unwrap();
    let mut command = Command::new(testbed("ROLLTAP_TESTBED_TRAINERS"));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/harbor_trials.py")).arg(tasks).arg(trials);
    // The test sends no telemetry and fetches nothing.
    command.env("HARBOR_TELEMETRY", "0").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let told = text(&output.stdout);
    let told: BTreeMap<String, Value> = serde_json::from_str(told.lines().next_back().unwrap()).unwrap();
    let seen = |(name, told): (String, Value)| {
        let seen = Seen {
            rewards: as_floats(&told["rewards"]),
            exception: told["exception"].clone(),
            verified: told["verified"] == true,
            steps: told["steps"].clone(),
            manifest: told["manifest"].clone(),
        };
        (name, seen)
    };
    told.into_iter().map(seen).collect()
}

/// Returns rewards as floats, so that 1 and 1.0 are equal.
fn as_floats(rewards: &Value) -> Value {
    let float = |(name, value): (&String, &Value)| (name.clone(), json!(value.as_f64()));
    rewards.as_object().map_or(Value::Null, |rewards| rewards.iter().map(float).collect())
}
