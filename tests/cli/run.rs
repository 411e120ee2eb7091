//! `rolltap run` in the local environment: successful, failed and impossible trials.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rolltap_testing::limit;
use serde_json::Value;

use super::program::{Ended, Running, json, repository, run};

/// Returns the result of the only trial of a job.
fn only_trial(job: &Path) -> Value {
    let mut results = trial_dirs(job).into_iter().map(|dir| json(&dir.join("result.json")));
    let result = results.next().unwrap();
    assert!(results.next().is_none());
    result
}

fn trial_dirs(job: &Path) -> Vec<PathBuf> {
    let entries = job.read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.join("trial.log").exists()).collect()
}

/// Makes a task whose tests write this text to the reward file.
fn task(dir: &Path, name: &str, config: &str, test: &str) -> String {
    let task = dir.join("tasks").join(name);
    fs::create_dir_all(task.join("tests")).unwrap();
    let config = format!("{config}\n[environment]\ndocker_image = \"unused\"\n");
    fs::write(task.join("task.toml"), config).unwrap();
    fs::write(task.join("instruction.md"), "Do it.").unwrap();
    fs::write(task.join("tests/test.sh"), format!("#!/bin/sh\n{test}\n")).unwrap();
    task.display().to_string()
}

/// Runs the terminal agent at a task, with a model that always gives this answer (the fields of a script's answer). The
/// job is named `it`.
fn run_terminal(dir: &Path, task: &str, answer: &str) -> Ended {
    let script = format!("[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\n{answer}\n");
    fs::write(dir.join("script.toml"), script).unwrap();
    let mut sim = Running::start(dir, &["sim", "--listen", "127.0.0.1:0", "--script", "script.toml"]);
    let upstream = sim.next_url();
    let job = ["run", "-p", task, "-a", "terminal", "-e", "local", "--job-name", "it"];
    // The check before a job would find these answers.
    run(dir, &[&job[..], &["--upstream", &upstream, "--no-preflight"]].concat())
}

#[test]
fn the_oracle_solves_and_nop_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = repository("examples/tasks");
    for (agent, reward) in [("oracle", 1.0), ("nop", 0.0)] {
        let ended = run(dir.path(), &["run", "-p", &tasks, "-a", agent, "-e", "local", "--job-name", agent]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let trials = trial_dirs(&dir.path().join("jobs").join(agent));
        assert_eq!(trials.len(), 2);
        for trial in trials {
            let result = json(&trial.join("result.json"));
            assert_eq!(result["verifier_result"]["rewards"]["reward"], reward, "{agent}: {result}");
            assert_eq!(result["exception_info"], Value::Null);
        }
    }
}

#[test]
fn a_command_finds_model_key_and_instruction_in_its_environment() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "", "echo 1 > /logs/verifier/reward.txt");
    let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0"]);
    let command =
        "env | sort; cat \"$ROLLTAP_INSTRUCTION_FILE\"; echo oops >&2; echo kept > /logs/agent/notes.txt";
    let args =
        ["run", "-p", &task, "-a", "command", "--agent-command", command, "-e", "local", "--job-name", "it"];
    let ended = run(dir.path(), &[&args[..], &["--upstream", &sim.next_url()]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let agent = trial_dirs(&dir.path().join("jobs/it"))[0].join("agent");
    let stdout = fs::read_to_string(agent.join("stdout.txt")).unwrap();
    let variable = |name: &str| {
        let prefix = format!("{name}=");
        let line = stdout.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {name} in {stdout}")).to_owned()
    };
    let base = variable("ANTHROPIC_BASE_URL");
    let key = variable("OPENAI_API_KEY");
    assert!(base.ends_with(&format!("/t/{key}")), "{base}");
    for name in ["OPENAI_BASE_URL", "OPENAI_API_BASE", "LLM_BASE_URL"] {
        assert_eq!(variable(name), format!("{base}/v1"));
    }
    for name in ["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "LLM_API_KEY"] {
        assert_eq!(variable(name), key);
    }
    for name in ["OPENAI_MODEL", "ANTHROPIC_MODEL", "LLM_MODEL"] {
        assert_eq!(variable(name), "sim", "the only model that is served");
    }
    assert_eq!(variable("GOOGLE_GEMINI_BASE_URL"), base);
    assert_eq!(variable("ROLLTAP_INSTRUCTION"), "Do it.");
    assert!(stdout.ends_with("Do it."), "the file: {stdout}");
    assert_eq!(fs::read_to_string(agent.join("stderr.txt")).unwrap(), "oops\n");
    assert_eq!(fs::read_to_string(agent.join("notes.txt")).unwrap(), "kept\n");
}

#[test]
fn an_agent_that_runs_out_of_time_is_still_judged() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "slow", "[agent]\ntimeout_sec = 10", "echo 0.3 > /logs/verifier/reward.txt");
    let ended = run_command(dir.path(), &task, "sleep 30", &["--timeout-multiplier", "0.1"]);
    assert_eq!(ended, Some(0), "a spent budget is the agent's own failure");
    let result = only_trial(&dir.path().join("jobs/it"));
    assert_eq!(result["exception_info"]["exception_type"], "AgentTimeoutError");
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 0.3);
    assert_eq!(result["rolltap"]["reward_valid"], true);
}

#[test]
fn an_agent_that_exits_with_an_error_is_still_judged() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "", "echo 0.5 > /logs/verifier/reward.txt");
    assert_eq!(run_command(dir.path(), &task, "exit 3", &[]), Some(0));
    let result = only_trial(&dir.path().join("jobs/it"));
    assert_eq!(result["exception_info"]["exception_type"], "NonZeroAgentExitCodeError");
    assert_eq!(result["exception_info"]["exception_message"], "the agent's command ended with exit code 3");
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 0.5);
}

#[test]
fn a_missing_reward_is_null_and_harms_no_other_trial() {
    let dir = tempfile::tempdir().unwrap();
    task(dir.path(), "broken", "", "exit 1");
    task(dir.path(), "fine", "", "echo 1 > /logs/verifier/reward.txt");
    let tasks = dir.path().join("tasks").display().to_string();
    let ended = run(dir.path(), &["run", "-p", &tasks, "-a", "nop", "-e", "local", "--job-name", "it"]);
    assert_eq!(ended.code, Some(1), "tests without a reward are not the agent's failure: {ended:?}");
    assert!(ended.stdout.contains("RewardFileNotFoundError"), "{}", ended.stdout);
    for trial in trial_dirs(&dir.path().join("jobs/it")) {
        let result = json(&trial.join("result.json"));
        if result["task_name"] == "fine" {
            assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0);
        } else {
            assert_eq!(result["verifier_result"], Value::Null);
            assert_eq!(result["rolltap"]["reward"], Value::Null);
            assert_eq!(result["rolltap"]["proxy"]["failure_cause"], "RewardFileNotFoundError");
            assert!(trial.join("exception.txt").exists());
        }
    }
}

/// If the model answers with errors only, the trial proves nothing about the agent.
#[test]
fn a_model_that_never_answers_is_not_the_agents_failure() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "trouble", "", "echo 0 > /logs/verifier/reward.txt");
    fs::write(PathBuf::from(&task).join("instruction.md"), "Look for trouble.").unwrap();
    let ended = run_terminal(dir.path(), &task, "error = { status = 400, message = \"no\" }");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let result = only_trial(&dir.path().join("jobs/it"));
    assert_eq!(result["exception_info"]["exception_type"], "ApiError", "{result}");
    assert_eq!(result["rolltap"]["reward"], Value::Null);
    assert_eq!(result["rolltap"]["proxy"]["reward_valid"], false);
    assert_eq!(run(dir.path(), &["check", "jobs/it"]).code, Some(0));
}

#[test]
fn an_agent_that_outgrew_its_context_is_not_judged_as_with_harbor() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "long", "", "echo 1 > /logs/verifier/reward.txt");
    let overflow =
        "error = { status = 400, message = \"This model's maximum context length is 10 tokens.\" }";
    let ended = run_terminal(dir.path(), &task, overflow);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result = only_trial(&dir.path().join("jobs/it"));
    assert_eq!(result["exception_info"]["exception_type"], "ContextLengthExceededError", "{result}");
    assert_eq!((&result["verifier_result"], &result["rolltap"]["reward"]), (&Value::Null, &Value::Null));
}

#[test]
fn an_oracle_without_a_solution_is_reported_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "", "true");
    let ended = run(dir.path(), &["run", "-p", &task, "-a", "oracle", "-e", "local"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains("tasks/one/solution/solve.sh: missing, expected the solution"),
        "{}",
        ended.stderr
    );
}

#[test]
fn ctrl_c_cancels_cleans_up_and_writes_results() {
    let job = interrupted(1);
    assert!(job.stderr.contains("stopping: "), "{}", job.stderr);
    assert!(!job.stderr.contains("hurrying: "), "{}", job.stderr);
    assert!(job.dir.path().join("jobs/it/rollouts.jsonl").exists());
}

#[test]
fn ctrl_c_twice_still_cleans_up() {
    let job = interrupted(2);
    assert!(job.stderr.contains("hurrying: "), "{}", job.stderr);
}

struct Interrupted {
    dir: tempfile::TempDir,
    stderr: String,
}

/// Starts a job of three trials, two at once, and sends this number of Ctrl-C. Checks that no agent is left and that
/// the result is written.
fn interrupted(times: u32) -> Interrupted {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "endless", "", "echo 1 > /logs/verifier/reward.txt");
    // No other process on this host sleeps for this number of seconds.
    let sleep = format!("sleep 8{}{times}", std::process::id());
    let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0"]);
    let args =
        ["run", "-p", &task, "-a", "command", "--agent-command", &sleep, "-e", "local", "--job-name", "it"];
    let job = Running::start(
        dir.path(),
        &[&args[..], &["-k", "3", "-n", "2", "--upstream", &sim.next_url()]].concat(),
    );
    let deadline = Instant::now() + limit(20);
    while processes(&sleep) < 2 {
        assert!(Instant::now() < deadline, "the trials did not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    for _ in 0..times {
        job.signal("INT");
        std::thread::sleep(Duration::from_millis(100)); // two pending signals would merge into one
    }
    let (code, stderr) = job.wait(limit(20));
    assert_eq!(code, Some(1), "{stderr}");
    while processes(&sleep) > 0 {
        assert!(Instant::now() < deadline + limit(20), "an agent is left");
        std::thread::sleep(Duration::from_millis(50));
    }
    let result = json(&dir.path().join("jobs/it/result.json"));
    assert_eq!(result["stats"]["n_cancelled_trials"], 2, "{result}");
    assert_eq!(result["stats"]["n_pending_trials"], 1, "{result}");
    Interrupted { dir, stderr }
}

fn run_command(dir: &Path, task: &str, command: &str, more: &[&str]) -> Option<i32> {
    let mut sim = Running::start(dir, &["sim", "--listen", "127.0.0.1:0"]);
    let upstream = sim.next_url();
    let args =
        ["run", "-p", task, "-a", "command", "--agent-command", command, "-e", "local", "--job-name", "it"];
    run(dir, &[&args[..], &["--upstream", &upstream], more].concat()).code
}

/// Returns the number of processes of this host with exactly this command line.
fn processes(command: &str) -> usize {
    let command_lines = Path::new("/proc").read_dir().unwrap();
    // A process that ends during the scan does not count.
    let command_lines =
        command_lines.filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok());
    command_lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").trim() == command).count()
}

#[test]
fn what_the_terminal_agent_leaves_running_is_there_for_the_tests() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(
        dir.path(),
        "server",
        "",
        "kill -0 \"$(cat pid)\" && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt",
    );
    let answer = r#"{"analysis": "", "plan": "", "commands": [{"keystrokes": "sleep 600 & echo $! > pid\n", "duration": 0.2}], "task_complete": true}"#;
    let ended = run_terminal(dir.path(), &task, &format!("content = '{answer}'"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result = only_trial(&dir.path().join("jobs/it"));
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{result}");
}
