//! A line of the report of a recomputation: every compared token of one row, with both logprobs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Bounds, Comparable, Policy};

/// The schema of the lines.
pub const RECOMPUTED_SCHEMA: &str = "recompute/1";

/// The compared tokens of one row. The lists have one entry per compared token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecomputedRow {
    /// [`RECOMPUTED_SCHEMA`].
    pub schema_version: String,
    /// The trial.
    pub trial_id: String,
    /// The row's `branch_index`.
    pub branch_index: i32,
    /// The policy versions of the compared tokens in order: labels, or the ordinals of versions without one, each once.
    pub policy_versions: Vec<String>,
    /// The served model that recomputed the logprobs.
    pub model: String,
    /// The server's name for its weights. `None` if the server does not name them.
    pub weights: Option<String>,
    /// The largest difference of a token that counts as equal, in nats.
    pub token_bound: f64,
    /// The largest mean difference of the row that counts as equal, in nats.
    pub mean_bound: f64,
    /// Why the server refused the row. The lists are empty then.
    pub refused: Option<String>,
    /// The indices in the row's `token_ids`, ascending.
    pub positions: Vec<u32>,
    /// The captured logprobs in nats.
    pub captured: Vec<f32>,
    /// The recomputed logprobs in nats. `None` for a number that JSON does not have, such as −∞.
    pub recomputed: Vec<Option<f32>>,
}

/// Why a line of a report cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is not of this schema.
    #[error("expected a line of schema {RECOMPUTED_SCHEMA:?}, found {0:?}")]
    Schema(String),
    /// The line is not JSON, or lacks a field.
    #[error("no line of a recomputation: {0}")]
    Json(#[from] serde_json::Error),
    /// The lists have different lengths.
    #[error("{positions} positions with {captured} captured and {recomputed} recomputed logprobs")]
    Lengths {
        /// The number of positions.
        positions: usize,
        /// The number of captured logprobs.
        captured: usize,
        /// The number of recomputed logprobs.
        recomputed: usize,
    },
}

/// The schema of a line, which decides how the rest is read.
#[derive(Deserialize)]
struct Schema {
    schema_version: String,
}

impl RecomputedRow {
    /// Returns the line of a row. `answer` has the logprobs of its `token_ids` after the first, or the message with which
    /// the server refused the row.
    pub fn new(
        row: &Comparable,
        answer: Result<&[f64], &str>,
        model: &str,
        weights: Option<&str>,
        bounds: Bounds,
    ) -> Self {
        let logprobs = answer.unwrap_or_default();
        let compared = if answer.is_ok() { row.tokens.as_slice() } else { &[] };
        let recomputed = compared.iter().map(|token| {
            let logprob = token.index.checked_sub(1).and_then(|index| logprobs.get(index));
            // The server computes with 32 bits too.
            logprob.map(|logprob| *logprob as f32).filter(|logprob| logprob.is_finite())
        });
        let policies: BTreeSet<&Policy> = row.tokens.iter().map(|token| &token.policy).collect();
        Self {
            schema_version: RECOMPUTED_SCHEMA.to_owned(),
            trial_id: row.trial_id.clone(),
            branch_index: row.branch_index,
            policy_versions: policies.into_iter().map(Policy::name).collect(),
            model: model.to_owned(),
            weights: weights.map(str::to_owned),
            token_bound: bounds.token,
            mean_bound: bounds.mean,
            refused: answer.err().map(str::to_owned),
            positions: compared.iter().map(|token| u32::try_from(token.index).unwrap_or(u32::MAX)).collect(),
            captured: compared.iter().map(|token| token.captured).collect(),
            recomputed: recomputed.collect(),
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// The line is no JSON, of another schema, or inconsistent.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let schema: Schema = serde_json::from_slice(line)?;
        if schema.schema_version != RECOMPUTED_SCHEMA {
            return Err(LineError::Schema(schema.schema_version));
        }
        let row: Self = serde_json::from_slice(line)?;
        let (positions, captured) = (row.positions.len(), row.captured.len());
        let recomputed = row.recomputed.len();
        if captured != positions || recomputed != positions {
            return Err(LineError::Lengths { positions, captured, recomputed });
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::check::recomputation::tests::sound_row;

    const BOUNDS: Bounds = Bounds { token: 0.5, mean: 0.1 };

    fn written(answer: Result<&[f64], &str>) -> RecomputedRow {
        let row = Comparable::of(&sound_row(), &mut Default::default());
        RecomputedRow::new(&row, answer, "m", Some("w"), BOUNDS)
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let logprobs = vec![-0.5; sound_row().token_ids.len()];
        for answer in [Ok(&logprobs[..]), Ok(&[]), Err("refused")] {
            let line = written(answer);
            let text = serde_json::to_vec(&line).unwrap();
            assert_eq!(RecomputedRow::parse(&text).unwrap(), line);
        }
        assert!(!written(Ok(&logprobs)).positions.is_empty());
        assert!(written(Err("refused")).positions.is_empty());
        assert!(written(Ok(&[])).recomputed.iter().all(Option::is_none), "a missing logprob is no number");
    }

    #[test]
    fn versions_have_their_label_or_ordinal_in_order() {
        let mut row = sound_row();
        row.token_version[2] = 10;
        row.token_version[4] = 2;
        row.token_version[5] = 3;
        row.version_labels.insert("3".to_owned(), "17".to_owned());
        let line =
            RecomputedRow::new(&Comparable::of(&row, &mut Default::default()), Ok(&[]), "m", None, BOUNDS);
        assert_eq!(line.policy_versions, ["2", "10", "17"]);
    }

    #[test]
    fn other_schemas_and_inconsistent_lines_are_named() {
        let mut line = serde_json::to_value(written(Ok(&[]))).unwrap();
        line["positions"] = serde_json::json!([]);
        let error = RecomputedRow::parse(line.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("0 positions with"), "{error}");
        line["schema_version"] = "recompute/9".into();
        let error = RecomputedRow::parse(line.to_string().as_bytes()).unwrap_err().to_string();
        assert_eq!(error, r#"expected a line of schema "recompute/1", found "recompute/9""#);
    }

    #[test]
    fn fuzz_recompute_line() {
        rolltap_testing::fuzz!("recompute_line", |line| {
            if let Ok(row) = RecomputedRow::parse(line) {
                assert_eq!(
                    (row.captured.len(), row.recomputed.len()),
                    (row.positions.len(), row.positions.len())
                );
            }
        });
    }

    proptest! {
        #[test]
        fn a_damaged_line_is_read_or_refused(at in 0_usize..400, byte: u8) {
            let mut line = serde_json::to_vec(&written(Ok(&[-0.5; 64]))).unwrap();
            let at = at % line.len();
            line[at] = byte;
            if let Ok(row) = RecomputedRow::parse(&line) {
                prop_assert_eq!(row.positions.len(), row.recomputed.len());
            }
        }
    }
}
