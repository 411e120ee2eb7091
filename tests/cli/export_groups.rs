//! `rolltap export` of groups with failed, missing and rowless trials, and the options that its messages advise.

use std::fs;
use std::path::Path;

use rolltap_rollout::row::RolloutRow;
use serde_json::Value;

use super::program::{Ended, run};
use super::rollouts::{trial, write_jsonl};

/// Returns a group of four trials with these rewards. `None` is a failed trial.
fn group(name: &str, rewards: [Option<f64>; 4]) -> Vec<RolloutRow> {
    let trials = rewards.into_iter().zip(0..).map(|(reward, index)| {
        let rows = trial(&format!("{name}{index}"), index, reward, 1);
        rows.into_iter().map(|row| RolloutRow { group_id: Some(name.to_owned()), ..row }).collect::<Vec<_>>()
    });
    trials.flatten().collect()
}

/// A group without variance, one of a lone survivor, one that half failed, one that failed as a whole, and a sound one.
fn mixed() -> Vec<RolloutRow> {
    [
        group("zero", [Some(1.0); 4]),
        group("lone", [Some(1.0), None, None, None]),
        group("half", [Some(1.0), Some(0.0), None, None]),
        group("failed", [None; 4]),
        group("sound", [Some(1.0), Some(0.0), Some(0.0), Some(0.0)]),
    ]
    .concat()
}

fn export(rows: &[RolloutRow], format: &str, args: &[&str]) -> (Ended, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    write_jsonl(&dir.path().join("in.jsonl"), rows);
    let fixed = ["export", "in.jsonl", "--quiet", "--format", format, "-o", "out"];
    let ended = run(dir.path(), &[&fixed[..], args].concat());
    (ended, lines(&dir.path().join("out")))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The report names the treatment of each group, for a trainer of each kind.
#[test]
fn the_report_names_what_is_left_out_and_filled() {
    let mut told = String::new();
    for (format, args) in [
        ("jsonl", &["--advantage", "grpo"][..]),
        ("jsonl", &["--untrained-groups"]),
        ("verl", &[]),
        ("verl", &["--failed", "mask"]),
        ("openrlhf", &[]),
        ("openrlhf", &["--short-groups", "drop"]),
        ("areal", &[]),
    ] {
        let (ended, _) = export(&mixed(), format, args);
        assert_eq!(ended.code, Some(0), "{format} {args:?}: {ended:?}");
        told += &format!("$ --format {format} {}\n{}\n", args.join(" "), ended.stderr);
    }
    insta::assert_snapshot!(told);
}

/// OpenRLHF computes `(r - mean) / std` over each four lines.
#[test]
fn a_counted_group_has_the_statistics_of_its_trials_with_a_reward() {
    let (_, lines) = export(&mixed(), "openrlhf", &[]);
    let half: Vec<_> = lines.iter().filter(|line| line["group_id"] == "half").collect();
    let mut rewards: Vec<_> = half.iter().map(|line| line["reward"].as_f64().unwrap()).collect();
    rewards.sort_by(f64::total_cmp);
    let distance = 0.5_f64.sqrt();
    assert_eq!(rewards, [0.5 - distance, 0.0, 1.0, 0.5 + distance]);
    assert_eq!(lines.len(), 12, "three groups of four");
}

/// Runs an export that must fail, and returns the message.
fn refused(rows: &[RolloutRow], format: &str, args: &[&str]) -> String {
    let (ended, lines) = export(rows, format, args);
    assert!(matches!(ended.code, Some(1 | 2)) && lines.is_empty(), "{format} {args:?}: {ended:?}");
    ended.stderr
}

/// Every advice of a message is followed here, and helps.
#[test]
fn what_a_message_advises_helps() {
    let sound = || group("sound", [Some(1.0), Some(0.0), Some(0.0), Some(0.0)]);
    let without = |name: &str| sound().into_iter().filter(|row| row.trial_id != name).collect::<Vec<_>>();
    let ungrouped =
        || sound().into_iter().map(|row| RolloutRow { group_id: None, group_size: None, ..row }).collect();
    let unnamed = || {
        let named = [("style".to_owned(), 1.0), ("tests".to_owned(), 0.5)];
        let rows = sound().into_iter().map(|row| RolloutRow {
            reward: None,
            reward_valid: false,
            rewards: named.clone().into(),
            ..row
        });
        rows.collect::<Vec<_>>()
    };
    let forked = || [trial("a", 0, Some(1.0), 2), trial("b", 1, Some(0.0), 1)].concat();
    type Case =
        (Vec<RolloutRow>, &'static str, &'static [&'static str], &'static str, &'static [&'static str]);
    let cases: [Case; 11] = [
        (vec![], "verl", &[], "there is no trial in the input", &[]),
        (without("sound3"), "openrlhf", &[], "--open-groups takes them", &["--open-groups"]),
        (mixed(), "openrlhf", &["--reward", "test"], "the names are: tests", &["--reward", "tests"]),
        (unnamed(), "verl", &[], "--reward NAME", &["--reward", "tests"]),
        (ungrouped(), "rllm", &[], "use --advantage none", &["--advantage", "none"]),
        (ungrouped(), "areal", &[], "use --advantage none", &["--advantage", "none"]),
        (
            forked(),
            "openrlhf",
            &["--on-fork", "all", "--open-groups"],
            "--on-fork longest",
            &["--on-fork", "longest", "--open-groups"],
        ),
        (
            forked(),
            "atropos",
            &["--on-fork", "all", "--open-groups"],
            "--on-fork longest",
            &["--on-fork", "longest", "--open-groups"],
        ),
        (
            forked(),
            "verl",
            &["--on-fork", "error", "--open-groups"],
            "--on-fork longest or all",
            &["--on-fork", "all", "--open-groups"],
        ),
        (group("lone", [Some(1.0), None, None, None]), "skyrl", &[], "--failed zero", &["--failed", "zero"]),
        (
            group("half", [Some(1.0), Some(0.0), None, None]),
            "openrlhf",
            &["--short-groups", "drop"],
            "--short-groups pad",
            &["--short-groups", "pad"],
        ),
    ];
    for (rows, format, args, advice, better) in cases {
        let message = refused(&rows, format, args);
        assert!(message.contains(advice), "{format} {args:?}: {message}");
        if !rows.is_empty() {
            let (ended, lines) = export(&rows, format, better);
            assert!(ended.code == Some(0) && !lines.is_empty(), "{format} {better:?}: {ended:?}");
        }
    }
}

#[test]
fn options_without_an_effect_are_refused() {
    let told = refused(&mixed(), "verl", &["--short-groups", "pad"]);
    assert!(told.contains("verl exports groups of any size; remove it"), "{told}");
    let told = refused(&mixed(), "verl", &["--untrained-groups"]);
    assert!(told.contains("or export with --format jsonl"), "{told}");
    assert_eq!(export(&mixed(), "jsonl", &["--untrained-groups"]).1.len(), 20);
}

/// The message of a job whose trials all failed names the reason and no option that would not help.
#[test]
fn a_job_whose_trials_all_failed() {
    let rows = group("failed", [None; 4]);
    assert!(refused(&rows, "verl", &[]).contains("nothing to export: 4 trials failed (--failed drop)"));
    let told = refused(&rows, "openrlhf", &[]);
    assert!(told.contains("nothing to export: 4 trials of groups in which nothing is trained"), "{told}");
}
