//! Rollouts for the tests of commands that read them, built by the same code as in the proxy.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use rolltap_rollout::call::{Call, CallRole, CallStatus, Choice, Dialect, Sampling};
use rolltap_rollout::export::formats::jsonl::{JsonlReader, JsonlWriter};
use rolltap_rollout::export::formats::parquet::{ParquetReader, ParquetWriter};
use rolltap_rollout::ids::{CallId, GroupId, TaskId, TrialId};
use rolltap_rollout::rollout::{Reward, TrialFacts, rows};
use rolltap_rollout::row::RolloutRow;
use rolltap_rollout::token::{Logprob, TokenId};
use rolltap_rollout::training::TrainingPolicy;

/// Returns the rows of a trial in a group of four. As many calls as it has branches extend its first call's answer.
pub(crate) fn trial(name: &str, sample_index: u32, reward: Option<f64>, branches: u32) -> Vec<RolloutRow> {
    let facts = TrialFacts {
        trial_id: TrialId::new(name).unwrap(),
        task_id: TaskId::new("org/task").unwrap(),
        group_id: Some(GroupId::new("job/org/task").unwrap()),
        group_size: Some(4),
        sample_index,
        attempt: 0,
        agent: None,
        environment: Some("docker".to_owned()),
        model: None,
        logprobs_mode: "processed_logprobs".to_owned(),
        tokenizer_hash: None,
        vocab_size: Some(1000),
        training: TrainingPolicy::default(),
    };
    let mut calls = vec![call(0, &[1, 2, 3], &[4, 5])];
    calls.extend((0..branches).map(|n| call(n + 1, &[1, 2, 3, 4, 5, 100 + n], &[6, 7, 8])));
    let reward = Reward {
        rewards: reward.map(|reward| ("tests".to_owned(), reward * 10.0)).into_iter().collect(),
        reward,
        valid: reward.is_some(),
        failure_cause: reward.is_none().then(|| "VerifierTimeoutError".to_owned()),
        version: None,
        suspicious: None,
    };
    rows(&facts, &reward, &calls)
}

/// Returns a whole group: two trials with reward 1, one of them forked, one with reward 0, and one that failed.
pub(crate) fn group() -> Vec<RolloutRow> {
    let trials = [
        trial("a", 0, Some(1.0), 1),
        trial("b", 1, Some(0.0), 1),
        trial("c", 2, Some(1.0), 2),
        trial("d", 3, None, 1),
    ];
    trials.concat()
}

fn call(n: u32, prompt: &[u32], answer: &[u32]) -> Call {
    let ids = |ids: &[u32]| ids.iter().map(|&id| TokenId::try_from(id).unwrap()).collect::<Vec<_>>();
    let at = jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(i64::from(n));
    Call {
        call_id: CallId::new(format!("call-{n}")).unwrap(),
        trial_id: TrialId::new("t").unwrap(),
        dialect: Dialect::ChatCompletions,
        model: "policy".to_owned(),
        served_model: None,
        status: CallStatus::Complete,
        role: CallRole::Main,
        continuation: None,
        prompt_token_ids: ids(prompt).into(),
        choices: vec![Choice {
            index: 0,
            token_ids: ids(answer).into_iter().collect(),
            logprobs: answer.iter().map(|&id| Logprob::try_from(-0.1 * id as f32).ok()).collect(),
            finish_reason: Some("stop".to_owned()),
            stop_reason: None,
            versions: Vec::new(),
        }],
        sampling: Sampling::default(),
        policy_version: 0,
        straddles_versions: false,
        version_labels: BTreeMap::new(),
        upstream: None,
        has_media: false,
        flaws: Vec::new(),
        http_status: Some(200),
        error: None,
        started_at: at,
        first_token_at: None,
        ended_at: at,
    }
}

pub(crate) fn write_jsonl(path: &Path, rows: &[RolloutRow]) {
    let mut writer = JsonlWriter::new(File::create(path).unwrap());
    rows.iter().for_each(|row| writer.write(row).unwrap());
    writer.finish().unwrap();
}

pub(crate) fn write_parquet(path: &Path, rows: &[RolloutRow]) {
    let mut writer = ParquetWriter::new(File::create(path).unwrap()).unwrap();
    rows.iter().for_each(|row| writer.write(row).unwrap());
    writer.finish().unwrap();
}

pub(crate) fn read_jsonl(path: &Path) -> Vec<RolloutRow> {
    parse_jsonl(&std::fs::read(path).unwrap())
}

pub(crate) fn parse_jsonl(bytes: &[u8]) -> Vec<RolloutRow> {
    JsonlReader::new(bytes).map(Result::unwrap).collect()
}

pub(crate) fn read_parquet(path: &Path) -> Vec<RolloutRow> {
    ParquetReader::new(File::open(path).unwrap()).unwrap().map(Result::unwrap).collect()
}
