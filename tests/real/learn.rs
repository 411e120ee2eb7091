//! The example that learns (examples/learn), shortened: every part is real, and its servers and the example itself are
//! killed in the middle.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rolltap_testing::limit;
use serde_json::Value;

use crate::harness::testbed;
use crate::trainers;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/learn");
const STEPS: usize = 3;
/// A run waits until vLLM has started, while other tests run.
const PATIENCE_SECONDS: u64 = 400;

/// Returns a command for this script of the example, in a Python with torch and the `rolltap` package. It uses groups
/// of four, and directories of this host.
pub(crate) fn training(script: &str, groups: &str, out: &Path) -> Command {
    let mut training = trainers::python().into_std();
    training
        .arg(Path::new(EXAMPLE).join(script))
        .args(["--program", env!("CARGO_BIN_EXE_rolltap")])
        .args(["--vllm-python", &testbed("ROLLTAP_TESTBED_PYTHON")])
        .args(["--env", "local", "--groups", groups, "--group-size", "4", "-n", "4"])
        // By default vLLM binds its threads to the first core, which servers of other tests use too. A thread that
        // waits for another one must not keep a core busy.
        .env("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        .env("OMP_WAIT_POLICY", "PASSIVE")
        .arg("--out")
        .arg(out);
    training
}

/// Returns the example on a model with a short pre-training.
fn example(out: &Path) -> Command {
    let mut example = training("__main__.py", "1", out);
    example.args(["--taught", &testbed("ROLLTAP_TESTBED_LEARNER")]).args([
        "--transcripts",
        "100",
        "--teaching-steps",
        "300",
    ]);
    example
}

/// Returns the folder of a pre-trained model. It is made once per machine and training code, which takes minutes.
pub(crate) fn taught() -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = example(dir.path()).arg("--teach-only").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    testbed("ROLLTAP_TESTBED_LEARNER")
}

/// Starts a run, which resumes an earlier one in the same folder.
fn run(out: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(out.join("terminal.log")).unwrap();
    let mut command = example(out);
    command.args(["--steps", &STEPS.to_string()]).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// Returns the output of the run so far.
fn log_text(out: &Path) -> String {
    fs::read_to_string(out.join("terminal.log")).unwrap_or_default()
}

/// Waits until the run has printed this text.
fn wait_for(out: &Path, run: &mut Child, words: &str) {
    wait_until(out, run, &format!("print {words:?}"), || log_text(out).contains(words));
}

fn wait_until(out: &Path, run: &mut Child, what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < limit(PATIENCE_SECONDS), "the run did not {what}:\n{}", log_text(out));
        let is_over = run.try_wait().unwrap().is_some();
        assert!(!is_over || is_so(), "the run ended before it did {what}:\n{}", log_text(out));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the id of the process with this name in the run.
fn pid_of(out: &Path, name: &str) -> Option<String> {
    let known = fs::read_to_string(out.join("processes.json")).ok()?;
    let known: Value = serde_json::from_str(&known).ok()?;
    Some(known.get(name)?.get(0)?.to_string())
}

fn kill(pid: &str) {
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
}

/// Kills the processes that a failed test leaves behind.
struct Leftovers(PathBuf);

impl Drop for Leftovers {
    fn drop(&mut self) {
        for name in ["service", "vllm"] {
            if let Some(pid) = pid_of(&self.0, name) {
                // Each process leads its own session.
                let _ = Command::new("kill").args(["-KILL", "--", &format!("-{pid}")]).status();
            }
        }
    }
}

/// Returns the trials in the captures with trainable tokens and a reward that measures the agent.
fn stored(out: &Path) -> BTreeSet<String> {
    let mut export = Command::new(env!("CARGO_BIN_EXE_rolltap"));
    export
        .arg("export")
        .arg(out.join("service/data"))
        .args(["--format", "jsonl", "--failed", "drop", "-o", "-"]);
    let output = export.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8(output.stdout).unwrap();
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| row["trial_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "needs vLLM and the trainers' packages: run ./scripts/test"]
fn what_is_captured_is_trained_once_through_kills_of_service_and_trainer() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    taught();
    let _leftovers = Leftovers(out.to_owned());

    let mut first = run(out);
    wait_for(out, &mut first, "step 0:");
    kill(&pid_of(out, "service").unwrap());
    wait_for(out, &mut first, "step 1:");
    // The batch of a step is written before the step trains on it. After a kill at that moment, nothing of the step is
    // stored.
    let weighed = out.join("exports/weighed.jsonl");
    fs::remove_file(&weighed).unwrap();
    wait_until(out, &mut first, "weigh the next batch", || weighed.exists());
    kill(&first.id().to_string());
    first.wait().unwrap();
    let mut second = run(out);
    wait_for(out, &mut second, "step 2:");
    assert!(second.wait().unwrap().success(), "{}", log_text(out));

    let told = log_text(out);
    assert!(told.contains("service died (status -9); starting it again"), "{told}");
    assert!(told.contains("which a killed run left behind"), "{told}");
    let steps = steps(out);
    assert_eq!(steps.len(), STEPS);
    for (number, step) in steps.iter().enumerate() {
        assert_eq!(step["step"].as_f64(), Some(number as f64));
        assert!(step["trained_tokens"].as_f64().unwrap() > 0.0, "{step}");
        // The batch was sampled by exactly these weights: no older or other weights, and no other tokens.
        assert_eq!(step["staleness_max"].as_f64(), Some(0.0), "{step}");
        assert!(step["logprob_diff_max"].as_f64().unwrap() < 1e-3, "{step}");
    }

    let trials: Value = serde_json::from_str(&fs::read_to_string(out.join("trials.json")).unwrap()).unwrap();
    let trained: Vec<String> = serde_json::from_value(trials["trained"].clone()).unwrap();
    let once: BTreeSet<String> = trained.iter().cloned().collect();
    assert_eq!(once.len(), trained.len(), "trained twice: {trained:?}");
    assert_eq!(once, stored(out));
    let checked = Command::new(env!("CARGO_BIN_EXE_rolltap"))
        .arg("check")
        .arg(out.join("service/data"))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    assert!(out.join("plot.png").exists() && out.join("table.md").exists());
    nothing_is_left_of_what_is_too_old(out);
}

/// The whole run of docs/tutorials/a-policy-learns.md, on a model that is taught with the example's own settings. For
/// each seed there, the reward rises from between 0.22 and 0.41 in the first step to above 0.8 in the last three.
#[test]
#[ignore = "needs vLLM, the trainers' packages and twenty minutes: run ./scripts/test --long"]
fn a_policy_learns_in_twenty_five_steps() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let _leftovers = Leftovers(out.to_owned());
    let mut python = trainers::python().into_std();
    python
        .arg(Path::new(EXAMPLE).join("__main__.py"))
        .args(["--program", env!("CARGO_BIN_EXE_rolltap"), "--env", "local"])
        .args(["--vllm-python", &testbed("ROLLTAP_TESTBED_PYTHON")])
        .arg("--out")
        .arg(out);
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let steps = steps(out);
    assert_eq!(steps.len(), 25);
    let reward = |steps: &[Value]| {
        steps.iter().map(|step| step["reward"].as_f64().unwrap()).sum::<f64>() / steps.len() as f64
    };
    let (first, last) = (reward(&steps[..1]), reward(&steps[22..]));
    assert!(first < 0.55 && last > 0.7, "reward {first} at first, {last} in the last three steps");
    for step in &steps {
        assert!(step["logprob_diff_max"].as_f64().unwrap() < 1e-3, "{step}");
    }
}

/// Returns the table of a run, a row per step.
fn steps(out: &Path) -> Vec<Value> {
    let table = fs::read_to_string(out.join("table.jsonl")).unwrap();
    table.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks that the trainer would drop the last batch if its weights were many versions newer.
fn nothing_is_left_of_what_is_too_old(out: &Path) {
    let script = "import json, sys; from pathlib import Path; from rollouts import export; \
                  folder = Path(sys.argv[2]); lines = (folder / 'rows.jsonl').read_text().splitlines(); \
                  assert export(sys.argv[1], list(map(json.loads, lines)), folder, 99) == []";
    let mut python = trainers::python().into_std();
    python.current_dir(EXAMPLE).args(["-c", script, env!("CARGO_BIN_EXE_rolltap")]).arg(out.join("exports"));
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "needs the trainers' packages: run ./scripts/test"]
fn the_examples_own_tests_pass() {
    let mut pytest = trainers::python().into_std();
    pytest
        .args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "tests"])
        .current_dir(EXAMPLE)
        // The tensors are small, and other tests run at the same time.
        .env("OMP_NUM_THREADS", "1");
    let output = pytest.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
