//! `rolltap export` of words: `--messages`, and the formats `messages`, `preference`, `labels` and `atif`, on the captures
//! of a real job of the demo.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use super::jobs::{read, task};
use super::program::{ENDS_AT_ONCE, Ended, run, simulator};
use super::rollouts::{read_jsonl, read_parquet};

/// Runs the demo: two groups of four trials, whose rewards are not equal.
fn demo() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &["demo", "--job-name", "demo"]).code, Some(0));
    dir
}

fn export(dir: &Path, input: &str, format: &str, args: &[&str]) -> Ended {
    let fixed = ["export", input, "--quiet", "--force", "--format", format, "-o", "out"];
    run(dir, &[&fixed[..], args].concat())
}

/// Returns the lines of a successful export, and its report.
fn exported(dir: &Path, input: &str, format: &str, args: &[&str]) -> (Vec<Value>, String) {
    let ended = export(dir, input, format, args);
    assert_eq!(ended.code, Some(0), "{format}: {ended:?}");
    let text = std::fs::read_to_string(dir.join("out")).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), ended.stderr)
}

#[test]
fn rows_of_a_job_have_messages_if_asked() {
    let dir = demo();
    let dir = dir.path();
    for (input, output) in [("jobs/demo", "job.jsonl"), ("jobs/demo/data", "data.jsonl")] {
        let ended = run(dir, &["export", input, "--format", "jsonl", "--messages", "-o", output]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let rows = read_jsonl(&dir.join(output));
        for call in rows.iter().flat_map(|row| &row.calls) {
            let messages: Vec<Value> = serde_json::from_str(call.messages.as_deref().unwrap()).unwrap();
            let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
            assert_eq!((roles[0], roles[roles.len() - 1]), ("user", "assistant"));
        }
        assert_eq!(rows.len(), 8);
    }
    let ended = run(dir, &["export", "job.jsonl", "--format", "parquet", "-o", "again.parquet"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        read_parquet(&dir.join("again.parquet")),
        read_jsonl(&dir.join("job.jsonl")),
        "a file keeps its own"
    );
    assert!(
        read_jsonl(&dir.join("jobs/demo/rollouts.jsonl")).iter().all(|row| row.calls[0].messages.is_none())
    );
    // The words of the file are enough for the formats of words.
    let of_file = exported(dir, "job.jsonl", "messages", &[]);
    assert_eq!(of_file, exported(dir, "jobs/demo", "messages", &[]));
}

#[test]
fn the_files_of_a_job_have_messages_if_the_job_asks() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (_sim, url) = simulator(dir, Some(ENDS_AT_ONCE));
    let task = task(dir, "passes", "echo 1 > /logs/verifier/reward.txt").display().to_string();
    let job = ["-p", &task, "-a", "terminal", "-e", "local", "--job-name", "it", "--upstream", &url];
    let ended = run(dir, &[&["run", "--messages"], &job[..]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let rows = read_jsonl(&dir.join("jobs/it/rollouts.jsonl"));
    assert!(rows.iter().flat_map(|row| &row.calls).all(|call| call.messages.is_some()), "{rows:?}");
    assert_eq!(read_parquet(&dir.join("jobs/it/rollouts.parquet")), rows);
    assert_eq!(run(dir, &["check", "jobs/it"]).code, Some(0));
    assert_eq!(read(&dir.join("jobs/it/config.json"))["rolltap"]["messages"], true);
}

#[test]
fn an_input_without_any_message_is_refused_with_the_remedy() {
    let dir = demo();
    let dir = dir.path();
    for (format, args) in [("messages", &[][..]), ("preference", &[]), ("jsonl", &["--messages"])] {
        let ended = export(dir, "jobs/demo/rollouts.jsonl", format, args);
        assert_eq!(ended.code, Some(1), "{format}: {ended:?}");
        assert!(
            ended.stderr.contains("no exported call in jobs/demo/rollouts.jsonl has messages"),
            "{ended:?}"
        );
        assert!(ended.stderr.contains("--format parquet --messages"), "{ended:?}");
        assert!(!dir.join("out").exists());
    }
    let (lines, told) = exported(dir, "jobs/demo/rollouts.jsonl", "atif", &[]);
    assert!(lines.len() == 8 && told.contains("calls: their messages, which were not recorded"), "{told}");
    let ended = export(dir, "jobs/demo", "tinker", &["--messages"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("--messages is for formats with messages (jsonl, parquet, messages, preference, atif)"),
        "{ended:?}"
    );
}

#[test]
fn trajectories_of_a_job_have_words() {
    let dir = demo();
    let (lines, told) = exported(dir.path(), "jobs/demo", "atif", &[]);
    assert!(!told.contains("not recorded"), "{told}");
    for step in lines.iter().flat_map(|line| line["steps"].as_array().unwrap()) {
        assert_ne!(step["message"], "", "{step}");
        assert_eq!(step["extra"].get("messages"), None);
    }
    let first = &lines[0]["steps"];
    assert_eq!((&first[0]["source"], &first[1]["source"]), (&json!("user"), &json!("agent")));
}

#[test]
fn conversations_are_selected_by_reward() {
    let dir = demo();
    let dir = dir.path();
    let (all, _) = exported(dir, "jobs/demo", "messages", &[]);
    let mut rewards: HashMap<&str, Vec<f64>> = HashMap::new();
    for line in &all {
        let group = line["group_id"].as_str().unwrap();
        rewards.entry(group).or_default().push(line["reward"].as_f64().unwrap());
        let messages = line["messages"].as_array().unwrap();
        assert!(messages.len() >= 2 && messages[messages.len() - 1]["role"] == "assistant", "{line}");
    }
    assert_eq!((all.len(), rewards.len()), (8, 2));
    let (best, told) = exported(dir, "jobs/demo", "messages", &["--best-of-group", "1"]);
    assert_eq!(best.len(), 2);
    assert!(told.contains("6 trials that are not the best of their group (--best-of-group)"), "{told}");
    for line in &best {
        let of_group = &rewards[line["group_id"].as_str().unwrap()];
        assert_eq!(line["reward"].as_f64(), of_group.iter().copied().reduce(f64::max));
    }
    let (high, _) = exported(dir, "jobs/demo", "labels", &["--min-reward", "1"]);
    assert_eq!(high.len(), all.iter().filter(|line| line["reward"] == 1.0).count());
    assert!(high.iter().all(|line| line["labels"].as_array().unwrap().iter().any(|label| *label != -100)));
    for (format, told) in
        [("trl", "the means of groups would be wrong"), ("preference", "use --min-margin instead")]
    {
        let ended = export(dir, "jobs/demo", format, &["--min-reward", "1"]);
        assert!(ended.code == Some(2) && ended.stderr.contains(told), "{ended:?}");
    }
}

#[test]
fn a_group_with_different_rewards_is_a_pair() {
    let dir = demo();
    // The first message has the terminal's screen, with the name of the trial's directory.
    let (none, told) = exported(dir.path(), "jobs/demo", "preference", &[]);
    assert!(none.is_empty() && told.contains("(--differing-prompts makes pairs of these)"), "{told}");
    let (pairs, _) = exported(dir.path(), "jobs/demo", "preference", &["--differing-prompts"]);
    assert!(!pairs.is_empty(), "the demo has groups with different rewards");
    for pair in &pairs {
        assert!(pair["score_chosen"].as_f64() > pair["score_rejected"].as_f64(), "{pair}");
        assert_eq!(
            (&pair["chosen"][0]["role"], &pair["rejected"][0]["role"]),
            (&json!("assistant"), &json!("assistant"))
        );
        assert_ne!(pair["chosen"], pair["rejected"]);
    }
    let (none, told) = exported(dir.path(), "jobs/demo", "preference", &["--min-margin", "2"]);
    assert!(none.is_empty() && told.contains("differ by less than --min-margin"), "{told}");
}
