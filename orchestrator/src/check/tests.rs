use std::fs::{self, File};

use rolltap_rollout::call::{Call, CallRole, CallStatus, Choice, Dialect, Sampling};
use rolltap_rollout::export::formats::jsonl::JsonlWriter;
use rolltap_rollout::export::formats::parquet::ParquetWriter;
use rolltap_rollout::ids::{CallId, TaskId};
use rolltap_rollout::rollout::{self, Reward, TrialFacts};
use rolltap_rollout::token::{Logprob, TokenId};
use rolltap_rollout::training::TrainingPolicy;

use super::*;

pub(crate) fn rows_of(trial_id: &str) -> Vec<RolloutRow> {
    let facts = TrialFacts {
        trial_id: TrialId::new(trial_id).unwrap(),
        task_id: TaskId::new("hello").unwrap(),
        group_id: None,
        group_size: None,
        sample_index: 0,
        attempt: 0,
        agent: None,
        environment: None,
        model: None,
        logprobs_mode: "raw_logprobs".to_owned(),
        tokenizer_hash: None,
        vocab_size: Some(100),
        training: TrainingPolicy::default(),
    };
    let tokens = |ids: &[u32]| ids.iter().map(|id| TokenId::try_from(*id).unwrap()).collect();
    let call = Call {
        call_id: CallId::generate(),
        trial_id: facts.trial_id.clone(),
        dialect: Dialect::ChatCompletions,
        model: "m".to_owned(),
        served_model: None,
        status: CallStatus::Complete,
        role: CallRole::Main,
        continuation: None,
        prompt_token_ids: tokens(&[1, 2, 3]),
        choices: vec![Choice {
            index: 0,
            token_ids: tokens(&[4, 5]).iter().copied().collect(),
            logprobs: vec![Logprob::try_from(-0.5).ok(), Logprob::try_from(-0.25).ok()],
            finish_reason: Some("stop".to_owned()),
            stop_reason: None,
            versions: Vec::new(),
        }],
        sampling: Sampling::default(),
        policy_version: 0,
        straddles_versions: false,
        version_labels: std::collections::BTreeMap::new(),
        upstream: None,
        has_media: false,
        flaws: Vec::new(),
        http_status: Some(200),
        error: None,
        started_at: jiff::Timestamp::UNIX_EPOCH,
        first_token_at: None,
        ended_at: jiff::Timestamp::UNIX_EPOCH,
    };
    rollout::rows(&facts, &Reward::default(), [&call])
}

/// Returns a job directory with these rows in its two files.
fn job(jsonl: &[RolloutRow], parquet: &[RolloutRow]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = JsonlWriter::new(File::create(dir.path().join("rollouts.jsonl")).unwrap());
    jsonl.iter().for_each(|row| lines.write(row).unwrap());
    lines.finish().unwrap();
    let mut records = ParquetWriter::new(File::create(dir.path().join("rollouts.parquet")).unwrap()).unwrap();
    parquet.iter().for_each(|row| records.write(row).unwrap());
    records.finish().unwrap();
    dir
}

fn breaches(path: &Path) -> (Checked, Vec<String>) {
    let mut told = Vec::new();
    let checked = check(path, None, None, |line| told.push(line.to_owned())).unwrap();
    (checked, told)
}

#[test]
fn sound_rows_pass_as_a_job_and_as_files() {
    let rows = [rows_of("one"), rows_of("two")].concat();
    let dir = job(&rows, &rows);
    assert_eq!(breaches(dir.path()), (Checked { rows: 4, breaches: 0 }, vec![]));
    for file in ["rollouts.jsonl", "rollouts.parquet"] {
        assert_eq!(breaches(&dir.path().join(file)), (Checked { rows: 2, breaches: 0 }, vec![]));
    }
}

#[test]
fn a_breach_names_file_and_trial() {
    let mut rows = rows_of("one");
    rows[0].loss_mask.pop();
    let (checked, told) = breaches(job(&rows, &rows).path());
    assert_eq!(checked.breaches, told.len() as u64);
    assert!(told.iter().any(|line| line.starts_with("rollouts.jsonl: trial one, branch 0: ")), "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("rollouts.parquet: trial one")), "{told:?}");
}

#[test]
fn files_that_differ_are_reported() {
    let (one, two) = (rows_of("one"), rows_of("two"));
    let (_, told) = breaches(job(&one, &two).path());
    assert_eq!(told, ["row 1 (trial one, branch 0) differs between rollouts.jsonl and rollouts.parquet"]);
    let (_, told) = breaches(job(&[one.clone(), two].concat(), &one).path());
    assert_eq!(told, ["rollouts.parquet ends before row 2 of rollouts.jsonl"]);
}

#[test]
fn a_line_that_is_no_row_is_a_breach_and_the_others_are_still_checked() {
    let dir = job(&rows_of("one"), &[]);
    let jsonl = dir.path().join("rollouts.jsonl");
    let text = fs::read_to_string(&jsonl).unwrap();
    fs::write(&jsonl, format!("nonsense\n{text}")).unwrap();
    let (checked, told) = breaches(&jsonl);
    assert_eq!(checked.rows, 2);
    assert!(matches!(told.as_slice(), [line] if line.starts_with("rollouts.jsonl: line 1: ")), "{told:?}");
}

#[test]
fn a_vocabulary_given_by_hand_counts_too() {
    let rows = rows_of("one");
    let dir = job(&rows, &rows);
    let mut told = 0;
    check(dir.path(), None, Some(5), |_| told += 1).unwrap();
    assert!(told > 0, "id 5 is not below 5");
}

#[test]
fn other_things_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = |path: &Path| check(path, None, None, |_| {}).unwrap_err();
    assert!(matches!(nothing(dir.path()), SourceError::Nothing(_)));
    assert!(matches!(nothing(&dir.path().join("x")), SourceError::NotFound(_)));
    fs::write(dir.path().join("x.txt"), "").unwrap();
    assert!(matches!(nothing(&dir.path().join("x.txt")), SourceError::Nothing(_)));
    fs::write(dir.path().join("x.parquet"), "no parquet").unwrap();
    assert!(matches!(nothing(&dir.path().join("x.parquet")), SourceError::Parquet { .. }));
}
