//! Rows of rollouts as JSON, for tests of what reads them.

#![expect(clippy::indexing_slicing, reason = "an index of a JSON object adds the key")]

use std::path::Path;

use serde_json::{Value, json};

/// The length of the prompt of [`rollout_row`], in tokens.
pub const PROMPT: usize = 2;

/// Returns a row of a trial with one call, which has `sampled` sampled tokens behind its prompt. Every sampled token is
/// trained, with a logprob of −0.5, and the ids count from 0.
pub fn rollout_row(trial: &str, task: &str, reward: Option<f64>, sampled: usize) -> Value {
    let length = PROMPT + sampled;
    let mask: Vec<u8> = (0..length).map(|at| u8::from(at >= PROMPT)).collect();
    let mut row = json!({
        "schema_version": "rollout/1", "trial_id": trial, "task_id": task, "group_id": task, "group_size": 2,
        "sample_index": 0, "attempt": 0, "superseded": false, "environment": null, "branch_index": 0,
        "num_branches": 1, "is_last_branch": true, "branch_cause": "first_call", "branch_reprefilled": PROMPT,
        "version_labels": {}, "prompt_len": PROMPT, "reward": reward, "advantage": null, "rewards": {},
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
    row["calls"] = json!([{
        "call_id": format!("call-of-{trial}"), "choice_index": 0, "parent_call_id": null, "role": "main", "model": "m",
        "prompt_len": PROMPT, "start": PROMPT, "end": length, "finish_reason": "stop", "version": 0,
        "sampled_at": "2026-11-25T00:00:00Z", "temperature": 1.0, "top_p": null, "top_k": null, "constrained": false,
        "sampling": "{}", "messages": null,
    }]);
    row
}

/// Writes values as JSON Lines.
pub fn write_jsonl(file: &Path, values: &[Value]) {
    let lines: Vec<_> = values.iter().map(|value| format!("{value}\n")).collect();
    std::fs::write(file, lines.concat()).unwrap();
}
