//! Agents that return their tokens themselves: as rollouts if nothing was captured, and otherwise for comparison with
//! the captures.

use std::fs;
use std::path::{Path, PathBuf};

use rolltap_rollout::row::RolloutRow;
use serde_json::{Value, json};

use super::program::{Ended, Running, json, run};
use super::rollouts::{read_jsonl, read_parquet};

/// Returns two turns of the agent, the second without logprobs, and one of a sub-agent.
fn trajectory() -> Value {
    let step = |number: u32, prompt: &[u32], answer: &[u32], logprobs: Value| {
        let metrics =
            json!({"prompt_token_ids": prompt, "completion_token_ids": answer, "logprobs": logprobs});
        json!({"step_id": number, "source": "agent", "message": "", "metrics": metrics})
    };
    let document = |steps: Vec<Value>| {
        json!({
            "schema_version": "ATIF-v1.8",
            "trajectory_id": "it",
            "agent": {"name": "mine", "version": "1", "model_name": "policy"},
            "steps": steps,
        })
    };
    let user = json!({"step_id": 1, "source": "user", "message": "Do it."});
    let mut root = document(vec![
        user,
        step(2, &[1, 2], &[3, 4], json!([-0.5, -0.25])),
        step(3, &[1, 2, 3, 4, 5], &[6], Value::Null),
    ]);
    root["subagent_trajectories"] = json!([document(vec![step(1, &[9], &[8], json!([-1.0]))])]);
    root
}

/// Runs a job named `it` of one trial, at a task whose tests are this script.
fn job(dir: &Path, test: &str, agent: &[&str]) -> Ended {
    let task = dir.join("task");
    fs::create_dir_all(task.join("tests")).unwrap();
    fs::write(task.join("task.toml"), "[environment]\ndocker_image = \"unused\"\n").unwrap();
    fs::write(task.join("instruction.md"), "Do it.").unwrap();
    fs::write(task.join("tests/test.sh"), format!("#!/bin/sh\n{test}\necho 1 > /logs/verifier/reward.txt\n"))
        .unwrap();
    fs::write(dir.join("script.toml"), SCRIPT).unwrap();
    let mut sim = Running::start(dir, &["sim", "--listen", "127.0.0.1:0", "--script", "script.toml"]);
    let upstream = sim.next_url();
    let args = ["run", "-p", "task", "-e", "local", "--job-name", "it", "--upstream", &upstream];
    run(dir, &[&args[..], agent].concat())
}

/// The script of rolltap's own agent, which is done at once.
const SCRIPT: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = '{"analysis": "", "plan": "", "commands": [], "task_complete": true}'
"#;

/// Runs a job whose agent only writes this record.
fn handing_back(dir: &Path, file: &str, content: &Value) -> Ended {
    let source = dir.join("handed-back.json");
    fs::write(&source, content.to_string()).unwrap();
    let command = format!("cp '{}' /logs/agent/{file}", source.display());
    job(dir, "", &["-a", "command", "--agent-command", &command])
}

fn only_trial(dir: &Path) -> PathBuf {
    let entries = dir.join("jobs/it").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut trials = entries.filter(|path| path.join("trial.log").exists());
    let trial = trials.next().unwrap();
    assert!(trials.next().is_none());
    trial
}

fn rows(dir: &Path) -> Vec<RolloutRow> {
    let rows = read_jsonl(&dir.join("jobs/it/rollouts.jsonl"));
    assert_eq!(read_parquet(&dir.join("jobs/it/rollouts.parquet")), rows);
    rows
}

fn check(dir: &Path) -> Ended {
    run(dir, &["check", "jobs/it"])
}

#[test]
fn what_an_agent_hands_back_becomes_its_rollout_where_nothing_was_captured() {
    let dir = tempfile::tempdir().unwrap();
    let ended = handing_back(dir.path(), "trajectory.json", &trajectory());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let rows = rows(dir.path());
    let [main, sub_agent] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(main.token_ids, [1, 2, 3, 4, 5, 6]);
    assert_eq!(main.sampled_mask, [0, 0, 1, 1, 0, 1]);
    assert_eq!(main.loss_mask, [0, 0, 1, 1, 0, 0], "the last turn has no logprobs");
    assert_eq!((main.reward, main.reward_valid, &*main.model), (Some(1.0), true, "policy"));
    assert_eq!(main.group_size, Some(1));
    assert_eq!((&*sub_agent.branch_cause, &*sub_agent.calls[0].role), ("sub_agent", "sub_agent"));
    for row in &rows {
        assert_eq!((row.origin.as_deref(), &*row.logprobs_mode), (Some("agent"), "unknown"));
    }
    let told = "agent/trajectory.json: 3 turns, 2 can be trained on, 1 missing_logprobs";
    assert!(ended.stdout.contains("tokens of 1 trial are what their agents handed back"), "{}", ended.stdout);
    assert!(ended.stdout.contains(told), "{}", ended.stdout);
    assert!(fs::read_to_string(dir.path().join("jobs/it/job.log")).unwrap().contains(told));
    let returned = &json(&only_trial(dir.path()).join("result.json"))["rolltap"]["returned"];
    assert_eq!((&returned["taken"], &returned["comparison"]), (&json!(true), &Value::Null));
    assert_eq!(returned["flaws"], json!({"missing_logprobs": 1}));
}

#[test]
fn rows_are_checked_against_the_file_that_they_were_made_of() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(handing_back(dir.path(), "trajectory.json", &trajectory()).code, Some(0));
    let ended = check(dir.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let file = only_trial(dir.path()).join("agent/trajectory.json");
    let mut other = trajectory();
    other["steps"][1]["metrics"]["completion_token_ids"] = json!([3, 7]);
    fs::write(&file, other.to_string()).unwrap();
    let ended = check(dir.path());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stdout.contains("captured_answer: calls[0]: sampled token 1 is Some(4)"),
        "{}",
        ended.stdout
    );
    fs::remove_file(&file).unwrap();
    let ended = check(dir.path());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("captured_call"), "{}", ended.stdout);
}

#[test]
fn rollout_details_are_taken_as_harbors_agents_hand_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let details = json!([
        {"prompt_token_ids": [[1], [1, 2, 3]], "completion_token_ids": [[2], [4]], "logprobs": [[-1.0], [-2.0]]},
        {"prompt_token_ids": [[1, 2, 5]], "completion_token_ids": [[6]], "logprobs": [[-3.0]], "extra": {}},
    ]);
    let account = json!({"n_input_tokens": 7, "rollout_details": details, "metadata": {"n_episodes": 2}});
    let ended = handing_back(dir.path(), "rollout_details.json", &account);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ids: Vec<_> = rows(dir.path()).into_iter().map(|row| (row.token_ids, row.loss_mask)).collect();
    assert_eq!(ids, [(vec![1, 2, 3, 4], vec![0, 1, 0, 1]), (vec![1, 2, 5, 6], vec![0, 0, 0, 1])]);
    assert_eq!(check(dir.path()).code, Some(0));
}

#[test]
fn a_capture_counts_and_a_differing_record_of_the_agent_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("handed-back.json");
    fs::write(&source, trajectory().to_string()).unwrap();
    // rolltap's own agent returns no tokens, so the tests write the record before the logs are collected.
    let test = format!("cp '{}' /logs/agent/trajectory.json", source.display());
    let ended = job(dir.path(), &test, &["-a", "terminal"]);
    assert_eq!(ended.code, Some(0), "a difference is a warning: {ended:?}");
    let rows = rows(dir.path());
    assert!(!rows.is_empty() && rows.iter().all(|row| row.origin.as_deref() == Some("captured")));
    let captured: usize = rows[0].calls.len();
    let told = format!("which counts: 3 turns handed back, {captured} captured, 0 of them the same");
    for text in [&ended.stdout, &fs::read_to_string(dir.path().join("jobs/it/job.log")).unwrap()] {
        assert!(
            text.contains(&told) && text.contains("first difference: token 0 of the prompt of turn 0"),
            "{text}"
        );
    }
    let returned = &json(&only_trial(dir.path()).join("result.json"))["rolltap"]["returned"];
    assert_eq!(returned["taken"], json!(false));
    let first = &returned["comparison"]["first_difference"];
    assert_eq!((&first["kind"], &first["turn"], &first["returned"]), (&json!("token"), &json!(0), &json!(1)));
    assert_eq!(check(dir.path()).code, Some(0));
}

#[test]
fn an_unreadable_record_is_reported_and_becomes_no_rollout() {
    let dir = tempfile::tempdir().unwrap();
    let ended =
        handing_back(dir.path(), "trajectory.json", &json!({"schema_version": "ATIF-v3.0", "steps": []}));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.contains("agent/trajectory.json: schema_version is \"ATIF-v3.0\""),
        "{}",
        ended.stdout
    );
    assert_eq!(rows(dir.path()), []);
    assert_eq!(check(dir.path()).code, Some(0));
}
