//! Files of rows with chosen contents.

use std::path::PathBuf;

use rolltap_rollout::row::RolloutRow;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The length of the prompt of each row.
pub(crate) const PROMPT: usize = 2;

/// A file of rows in a directory of its own.
pub(crate) struct RowsFile(TempDir);

impl RowsFile {
    pub(crate) fn of(rows: &[Value]) -> Self {
        let file = Self(TempDir::new().unwrap());
        file.write(rows);
        file
    }

    /// Replaces the rows.
    pub(crate) fn write(&self, rows: &[Value]) {
        let lines: Vec<_> = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(self.path(), lines.concat()).unwrap();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("rows.jsonl")
    }
}

/// Returns a row of a trial with this many sampled tokens behind its prompt. The ids have five or six digits, as those of
/// real vocabularies, and the logprobs are of every class of colours.
pub(crate) fn row(trial: &str, task: &str, sampled: usize) -> Value {
    let length = PROMPT + sampled;
    let mask: Vec<u8> = (0..length).map(|at| u8::from(at >= PROMPT)).collect();
    let logprobs = [-0.001, -0.05, -0.5, -1.5, -4.0].iter().cycle();
    let mut row = json!({
        "schema_version": "rollout/1", "trial_id": trial, "task_id": task, "group_id": task, "group_size": 2,
        "sample_index": 0, "attempt": 0, "superseded": false, "environment": "docker", "branch_index": 0,
        "num_branches": 1, "is_last_branch": true, "branch_cause": "first_call", "branch_reprefilled": PROMPT,
        "version_labels": {"0": "step-0"}, "prompt_len": PROMPT, "reward": 1.0, "advantage": null,
        "rewards": {"reward": 1.0}, "reward_valid": true, "failure_cause": null, "reward_version": null,
        "suspicious": null, "is_truncated": false, "stop_reason": "stop", "status": "completed", "model": "m",
        "tokenizer_hash": null, "vocab_size": null, "logprobs_mode": "raw_logprobs", "has_media": false,
        "origin": "captured",
    });
    row["token_ids"] = (50_000..50_000 + length).collect();
    row["logprobs"] = mask.iter().zip(logprobs).map(|(bit, logprob)| f64::from(*bit) * logprob).collect();
    row["token_version"] = mask.iter().map(|bit| i32::from(*bit) - 1).collect();
    for name in ["sampled_mask", "trainable_mask", "loss_mask"] {
        row[name] = mask.clone().into();
    }
    row["calls"] = json!([{
        "call_id": format!("call-of-{trial}"), "choice_index": 0, "parent_call_id": null, "role": "main", "model": "m",
        "prompt_len": PROMPT, "start": PROMPT, "end": length, "finish_reason": "stop", "version": 0,
        "sampled_at": "2026-11-25T00:00:00Z", "temperature": 1.0, "top_p": null, "top_k": null, "constrained": false,
        "sampling": "{}", "messages": null,
    }]);
    assert!(is_row(&row), "{row}");
    row
}

/// Whether rolltap reads a value as a row.
pub(crate) fn is_row(row: &Value) -> bool {
    serde_json::from_value::<RolloutRow>(row.clone()).is_ok()
}
