//! Rows for tests.

use std::path::Path;

use rolltap_rollout::row::RolloutRow;
use serde_json::{Value, json};

/// Writes rows as JSON Lines.
pub(crate) fn write_rows(file: &Path, rows: &[Value]) {
    let lines: Vec<_> = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(file, lines.concat()).unwrap();
}

/// Returns a row of a trial with `sampled` sampled tokens behind a prompt of two.
pub(crate) fn row(trial: &str, task: &str, reward: Option<f64>, sampled: usize) -> Value {
    let length = sampled + 2;
    let mask: Vec<u8> = (0..length).map(|at| u8::from(at >= 2)).collect();
    let mut row = json!({
        "schema_version": "rollout/1", "trial_id": trial, "task_id": task, "group_id": task, "group_size": 2,
        "sample_index": 0, "attempt": 0, "superseded": false, "environment": null, "branch_index": 0,
        "num_branches": 1, "is_last_branch": true, "branch_cause": "first_call", "branch_reprefilled": 2,
        "version_labels": {}, "prompt_len": 2, "reward": reward, "advantage": null, "rewards": {},
        "reward_valid": reward.is_some(), "failure_cause": null, "reward_version": null, "suspicious": null,
        "is_truncated": false, "stop_reason": "stop", "status": "completed", "model": "m", "tokenizer_hash": null,
        "vocab_size": null, "logprobs_mode": "raw_logprobs", "has_media": false, "origin": "captured",
    });
    row["token_ids"] = (0..length).collect();
    for name in ["sampled_mask", "trainable_mask", "loss_mask"] {
        row[name] = mask.clone().into();
    }
    row["logprobs"] = mask.iter().map(|bit| -0.5 * f64::from(*bit)).collect();
    row["token_version"] = mask.iter().map(|bit| i32::from(*bit) - 1).collect();
    row["calls"] = json!([{"call_id": format!("call-of-{trial}"), "choice_index": 0, "parent_call_id": null,
        "role": "main", "model": "m", "prompt_len": 2, "start": 2, "end": length, "finish_reason": "stop",
        "version": 0, "sampled_at": "2026-11-25T00:00:00Z", "temperature": 1.0, "top_p": null, "top_k": null,
        "constrained": false, "sampling": "{}", "messages": null}]);
    serde_json::from_value::<RolloutRow>(row.clone()).unwrap();
    row
}
