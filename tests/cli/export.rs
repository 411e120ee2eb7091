//! `rolltap export`: the exported part of an input, the report about the rest, and no partial output.

use std::fs;
use std::path::Path;

use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::format::Format;
use rolltap_rollout::row::RolloutRow;
use serde_json::json;

use super::program::{Ended, run};
use super::rollouts::{group, parse_jsonl, read_jsonl, read_parquet, trial, write_jsonl, write_parquet};

/// Exports `in.jsonl` with these rows to `out.jsonl`. Returns the result and the directory.
fn export(rows: &[RolloutRow], args: &[&str]) -> (Ended, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    write_jsonl(&dir.path().join("in.jsonl"), rows);
    let fixed = ["export", "in.jsonl", "--format", "jsonl", "-o", "out.jsonl"];
    (run(dir.path(), &[&fixed[..], args].concat()), dir)
}

fn exported(rows: &[RolloutRow], args: &[&str]) -> Vec<RolloutRow> {
    let (ended, dir) = export(rows, args);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(files(dir.path()), ["in.jsonl", "out.jsonl"]);
    read_jsonl(&dir.path().join("out.jsonl"))
}

/// Runs an export that must fail and leave nothing behind. Returns its standard error.
fn refused(rows: &[RolloutRow], args: &[&str]) -> String {
    let (ended, dir) = export(rows, args);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert_eq!(files(dir.path()), ["in.jsonl"]);
    ended.stderr
}

fn files(dir: &Path) -> Vec<String> {
    let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries
}

/// Returns the trial, the branch and the number of trained tokens.
fn trained(rows: &[RolloutRow]) -> Vec<(&str, i32, usize)> {
    let count = |row: &RolloutRow| row.loss_mask.iter().filter(|&&mask| mask == 1).count();
    rows.iter().map(|row| (row.trial_id.as_str(), row.branch_index, count(row))).collect()
}

#[test]
fn a_summary_lists_the_written_and_the_omitted_trials() {
    let mut rows = group();
    rows[0].calls[0].constrained = true;
    rows.extend(
        trial("e", 0, Some(1.0), 1).into_iter().map(|row| RolloutRow { group_id: Some("x".into()), ..row }),
    );
    let (ended, _dir) = export(&rows, &["--on-fork", "longest", "--advantage", "grpo"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    insta::assert_snapshot!(ended.stderr);
}

#[test]
fn everything_comes_out_as_it_was_but_for_what_is_not_trained() {
    let rows = group();
    let mut expected = rows.clone();
    let failed = expected.last_mut().unwrap();
    failed.trainable_mask.fill(0);
    failed.loss_mask.fill(0);
    assert_eq!(exported(&rows, &[]), expected);
}

#[test]
fn both_forms_of_rows_hold_the_same() {
    let dir = tempfile::tempdir().unwrap();
    write_parquet(&dir.path().join("in.parquet"), &group());
    for (input, format, output) in [
        ("in.parquet", "jsonl", "a.jsonl"),
        ("a.jsonl", "parquet", "b.parquet"),
        ("b.parquet", "jsonl", "c.jsonl"),
    ] {
        let ended =
            run(dir.path(), &["export", input, "--format", format, "-o", output, "--advantage", "mean"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    assert_eq!(fs::read(dir.path().join("a.jsonl")).unwrap(), fs::read(dir.path().join("c.jsonl")).unwrap());
    assert_eq!(read_parquet(&dir.path().join("b.parquet")), read_jsonl(&dir.path().join("a.jsonl")));
    let checked = run(dir.path(), &["check", "b.parquet"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

/// A trial has the advantage of one trial for any number of branches: the mean is of three rewards, not of four.
#[test]
fn a_fork_weighs_as_one_trial() {
    let rows = exported(&group(), &["--advantage", "mean"]);
    let advantages: Vec<_> = rows.iter().map(|row| (row.trial_id.as_str(), row.advantage.unwrap())).collect();
    let third = 1.0 - 2.0 / 3.0;
    assert_eq!(advantages, [("a", third), ("b", -2.0 / 3.0), ("c", third), ("c", third), ("d", 0.0)]);
    assert_eq!(trained(&rows), [("a", 0, 5), ("b", 0, 5), ("c", 0, 5), ("c", 1, 3), ("d", 0, 0)]);
}

#[test]
fn of_a_fork_the_longest_branch_can_stand_for_all() {
    let mut rows = group();
    let second = &mut rows[3];
    assert_eq!((second.trial_id.as_str(), second.branch_index), ("c", 1));
    assert_eq!(second.loss_mask.iter().filter(|&&mask| mask == 1).count(), 3);
    let first = &mut rows[2];
    (first.trainable_mask[8], first.loss_mask[8]) = (0, 0);
    let rows = exported(&rows, &["--on-fork", "longest"]);
    assert_eq!(trained(&rows), [("a", 0, 5), ("b", 0, 5), ("c", 1, 5), ("d", 0, 0)]);
}

#[test]
fn a_fork_can_end_the_export() {
    insta::assert_snapshot!(refused(&group(), &["--on-fork", "error"]));
}

#[test]
fn failed_trials_are_what_was_asked_for() {
    let of = |args: &[&str]| {
        let rows = exported(&group(), args);
        rows.last().map(|row| (row.trial_id.clone(), row.reward, row.reward_valid)).unwrap()
    };
    assert_eq!(of(&["--failed", "mask"]), ("d".to_owned(), None, false));
    assert_eq!(of(&["--failed", "zero"]), ("d".to_owned(), Some(0.0), true));
    assert_eq!(of(&["--failed", "drop"]).0, "c");
    let said = refused(&group(), &["--failed", "drop-group"]);
    assert!(said.contains("nothing to export: 1 trial failed"), "{said}");
}

#[test]
fn another_reward_can_be_trained_on() {
    let rows = exported(&group(), &["--reward", "tests", "--advantage", "mean"]);
    assert_eq!((rows[0].reward, rows[1].advantage), (Some(10.0), Some(-20.0 / 3.0)));
    insta::assert_snapshot!(refused(&group(), &["--reward", "test"]));
}

#[test]
fn groups_that_are_not_whole_wait() {
    let rows: Vec<_> = group().into_iter().filter(|row| row.trial_id != "b").collect();
    insta::assert_snapshot!(refused(&rows, &[]));
    assert_eq!(exported(&rows, &["--open-groups"]).len(), 4);
}

#[test]
fn a_breach_is_reported_with_its_place_and_nothing_is_written() {
    let mut rows = group();
    rows[3].logprobs[4] = 0.5;
    insta::assert_snapshot!(refused(&rows, &[]));
    let mut rows = group();
    rows[1].token_ids.truncate(4);
    let said = refused(&rows, &[]);
    assert!(said.contains("error: trial b, branch 0: list_lengths: "), "{said}");
}

#[test]
fn a_reward_that_is_no_number_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = group();
    rows[0].reward = Some(f64::NAN);
    write_parquet(&dir.path().join("in.parquet"), &rows);
    let ended = run(dir.path(), &["export", "in.parquet", "--format", "jsonl", "-o", "out.jsonl"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("trial a: the reward is NaN"), "{}", ended.stderr);
    assert_eq!(files(dir.path()), ["in.parquet"]);
}

#[test]
fn a_line_that_is_no_row_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in.jsonl"), "{\"trial_id\": \"a\"}\n").unwrap();
    let ended = run(dir.path(), &["export", "in.jsonl", "--format", "jsonl", "-o", "out.jsonl"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("in.jsonl: line 1: missing field"), "{}", ended.stderr);
    assert_eq!(files(dir.path()), ["in.jsonl"]);
}

#[test]
fn what_is_there_is_not_replaced_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    write_jsonl(&dir.path().join("in.jsonl"), &group());
    fs::write(dir.path().join("out.jsonl"), "precious").unwrap();
    let args = ["export", "in.jsonl", "--format", "jsonl", "-o", "out.jsonl"];
    let ended = run(dir.path(), &args);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(2), "error: out.jsonl exists already; --force replaces it\n")
    );
    assert_eq!(fs::read_to_string(dir.path().join("out.jsonl")).unwrap(), "precious");
    assert_eq!(run(dir.path(), &[&args[..], &["--force"]].concat()).code, Some(0));
    assert_eq!(read_jsonl(&dir.path().join("out.jsonl")).len(), 5);
}

#[test]
fn an_output_may_be_the_input() {
    let dir = tempfile::tempdir().unwrap();
    write_jsonl(&dir.path().join("in.jsonl"), &group());
    let args = ["export", "in.jsonl", "--format", "jsonl", "-o", "in.jsonl", "--force", "--failed", "drop"];
    assert_eq!(run(dir.path(), &args).code, Some(0));
    assert_eq!(read_jsonl(&dir.path().join("in.jsonl")).len(), 4);
}

#[test]
fn unwritable_places_are_reported_first() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |output: &str| {
        let ended =
            run(dir.path(), &["export", "nowhere.jsonl", "--format", "jsonl", "-o", output, "--force"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.stderr
    };
    assert!(refused("no/such/dir.jsonl").contains("its directory does not exist"));
    assert!(refused("/dev/null").contains("it is there and no file"));
    assert!(refused("out.jsonl").contains("nowhere.jsonl does not exist"));
}

#[test]
fn standard_output_gets_all_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = group();
    write_jsonl(&dir.path().join("in.jsonl"), &rows);
    let args = ["export", "in.jsonl", "--format", "jsonl", "-o", "-"];
    let ended = run(dir.path(), &args);
    assert_eq!(parse_jsonl(ended.stdout.as_bytes()).len(), 5, "{ended:?}");
    rows[4].loss_mask.pop();
    write_jsonl(&dir.path().join("in.jsonl"), &rows);
    let ended = run(dir.path(), &args);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
}

/// Adds messages to calls: each answer is the name of its trial and its call.
fn with_messages(mut rows: Vec<RolloutRow>) -> Vec<RolloutRow> {
    for row in &mut rows {
        let mut messages = Vec::new();
        for call in &mut row.calls {
            let answer = format!("{} {}", row.trial_id, call.call_id);
            messages.push(json!({"role": "user", "content": "next"}));
            messages.push(json!({"role": "assistant", "content": answer}));
            call.messages = Some(json!(messages).to_string());
        }
    }
    rows
}

/// A group of a success, a forked success, a trial with reward 0 and a failed one. Each format accepts them by default,
/// and reports every field that it has no place for.
#[test]
fn every_format_takes_a_group_with_a_fork_and_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    write_jsonl(&dir.path().join("in.jsonl"), &with_messages(group()));
    let mut told = String::new();
    for format in Format::ALL {
        let output = format!("out.{}", format.name());
        let mut args = vec!["export", "in.jsonl", "--quiet", "--format", format.name(), "-o", &output];
        if *format == Format::PrimeRl {
            args.extend(["--assumed-temperature", "1"]);
        }
        let ended = run(dir.path(), &args);
        assert_eq!(ended.code, Some(0), "{}: {ended:?}", format.name());
        assert!(fs::metadata(dir.path().join(&output)).unwrap().len() > 0, "{}", format.name());
        told += &format!("{}\n", ended.stderr);
    }
    insta::assert_snapshot!(told);
}

#[test]
fn options_of_another_format_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["export", "x.jsonl", "--format", "tinker", "-o", "y", "--seq-len", "100"];
    let ended = run(dir.path(), &args);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(2), "error: --seq-len is of --format prime-rl, and this is tinker\n")
    );
}

#[test]
fn an_unknown_format() {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(dir.path(), &["export", "x.jsonl", "--format", "jsnl", "-o", "y"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("a similar value exists: 'jsonl'"), "{}", ended.stderr);
}

/// A job's files and its capture store alone give the same rollouts.
#[test]
fn a_job_and_its_data_directory_give_the_same() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &["demo", "--job-name", "demo"]).code, Some(0));
    let sorted = |input: &str, output: &str| {
        let ended =
            run(dir.path(), &["export", input, "--format", "jsonl", "--advantage", "grpo", "-o", output]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("8 trials in 2 groups"), "{}", ended.stderr);
        let mut rows = read_jsonl(&dir.path().join(output));
        rows.sort_by_key(|row| (row.trial_id.clone(), row.branch_index));
        rows
    };
    let of_job = sorted("jobs/demo", "job.jsonl");
    assert_eq!(of_job, sorted("jobs/demo/data", "data.jsonl"));
    assert_eq!(of_job.len(), 8);
    assert!(of_job.iter().any(|row| row.advantage.is_some_and(|advantage| advantage > 0.0)));
}
