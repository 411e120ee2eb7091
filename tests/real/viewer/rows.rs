//! Files of rows with chosen contents.

use std::path::PathBuf;

use rolltap_rollout::row::RolloutRow;
use rolltap_testing::{PROMPT, rollout_row, write_jsonl};
use serde_json::{Value, json};
use tempfile::TempDir;

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
        write_jsonl(&self.path(), rows);
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("rows.jsonl")
    }
}

/// Returns a row of a trial with this many sampled tokens behind its prompt. The ids have five or six digits, as those of
/// real vocabularies, and the logprobs are of every class of colours.
pub(crate) fn row(trial: &str, task: &str, sampled: usize) -> Value {
    let mut row = rollout_row(trial, task, Some(1.0), sampled);
    let length = PROMPT + sampled;
    let logprobs = [-0.001, -0.05, -0.5, -1.5, -4.0].iter().cycle();
    row["token_ids"] = (50_000..50_000 + length).collect();
    row["logprobs"] =
        (0..length).zip(logprobs).map(|(at, logprob)| if at < PROMPT { 0.0 } else { *logprob }).collect();
    row["environment"] = "docker".into();
    row["version_labels"] = json!({"0": "step-0"});
    row["rewards"] = json!({"reward": 1.0});
    assert!(is_row(&row), "{row}");
    row
}

/// Returns the rows of a trial whose conversation forks behind its first call.
pub(crate) fn forked(trial: &str, task: &str) -> [Value; 2] {
    let (mut first, mut second) = (row(trial, task, 3), row(trial, task, 6));
    let shared = first["calls"][0].clone();
    let mut own = shared.clone();
    own["call_id"] = "second-call".into();
    own["parent_call_id"] = shared["call_id"].clone();
    own["role"] = "sub_agent".into();
    own["prompt_len"] = (PROMPT + 5).into();
    own["start"] = (PROMPT + 5).into();
    own["end"] = (PROMPT + 6).into();
    second["calls"] = json!([shared, own]);
    second["branch_cause"] = "fork".into();
    for (index, row) in [&mut first, &mut second].into_iter().enumerate() {
        row["branch_index"] = index.into();
        row["num_branches"] = 2.into();
        row["is_last_branch"] = (index == 1).into();
    }
    [first, second]
}

/// Whether rolltap reads a value as a row.
pub(crate) fn is_row(row: &Value) -> bool {
    serde_json::from_value::<RolloutRow>(row.clone()).is_ok()
}
