//! Training data of Tinker, one JSON line per branch: the `Datum` of `tinker` 0.38.0, for its losses over sampled
//! tokens (`importance_sampling`, `ppo`, `cispo` and similar ones).
//!
//! `model_input` is the branch without its last token. For each of its positions, `loss_fn_inputs` has the values of
//! the next token: `target_tokens`, `logprobs` and `advantages`. There is no mask. An advantage of 0 has that effect,
//! so tokens that are not trained have 0 as advantage and 0.0 as logprob. tinker-cookbook 0.6.1 makes the same datum
//! from the same turns, apart from the `mask` that it removes before sending.
//!
//! A datum contains the advantage, so a trial without an advantage is rejected. A branch without trained tokens has no
//! datum, because all its advantages would be 0. Losses that require provenance (`stable_reinforce`) reject tokens from
//! elsewhere, and so reject these.

use std::io::Write;
use std::iter::Zip;
use std::slice::Iter;

use serde::Serialize;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::float_text::Exact;
use crate::export::shared::lines::{Lines, Tally, refused};
use crate::export::shared::refusal::{advantage, refuse_unfit};
use crate::export::shared::row_queries::{has_versions, is_trained};
use crate::row::RolloutRow;

/// Writes `Datum`s as of `tinker` 0.38.0. The module describes the format.
#[derive(Debug)]
pub struct TinkerExporter<W: Write> {
    lines: Lines<W>,
    told: Tally,
}

impl<W: Write> TinkerExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), told: Tally::default() }
    }
}

impl<W: Write> Exporter for TinkerExporter<W> {
    /// # Errors
    /// The trial has images, or trained tokens without an advantage or without a token before them.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let advantage = advantage(&trial)?.unwrap_or_default();
        for row in &trial.rows {
            // All advantages would be 0, so the datum would have no effect.
            if !is_trained(row) {
                self.told.add("rows: nothing in them is trained", 1);
                continue;
            }
            self.lines.write(&row.trial_id, &Datum::of(row, advantage)?)?;
            self.told.add("rows: their trial, group and reward (a datum has the advantage alone)", 1);
            self.told.add("rows: their policy versions", usize::from(has_versions(row)));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.lines.finish()?;
        Ok(self.told.omissions())
    }
}

#[derive(Serialize)]
struct Datum<'a> {
    model_input: ModelInput<'a>,
    loss_fn_inputs: LossInputs<'a>,
}

#[derive(Serialize)]
struct ModelInput<'a> {
    chunks: [Chunk<'a>; 1],
}

#[derive(Serialize)]
struct Chunk<'a> {
    tokens: &'a [i32],
    r#type: &'static str,
}

#[derive(Serialize)]
struct LossInputs<'a> {
    target_tokens: Tensor<&'a [i32]>,
    logprobs: Tensor<Exact<OnMask<'a>>>,
    advantages: Tensor<Exact<OnMask<'a>>>,
}

#[derive(Serialize)]
struct Tensor<D> {
    data: D,
    dtype: &'static str,
    shape: [usize; 1],
}

impl<'a> Datum<'a> {
    fn of(row: &'a RolloutRow, advantage: f64) -> Result<Self, ExportError> {
        let (Some((_, inputs)), Some((_, targets))) =
            (row.token_ids.split_last(), row.token_ids.split_first())
        else {
            return Err(refused(row, "it has no tokens"));
        };
        // The first token has no preceding position, so its mask must be 0.
        let (Some((0, mask)), Some((_, logprobs))) =
            (row.loss_mask.split_first(), row.logprobs.split_first())
        else {
            return Err(refused(
                row,
                "its first token is trained, and there is none before it to predict it from",
            ));
        };
        let shape = [targets.len()];
        let floats = |on| Tensor {
            data: Exact(OnMask { values: logprobs.iter().zip(mask), on }),
            dtype: "float32",
            shape,
        };
        Ok(Self {
            model_input: ModelInput { chunks: [Chunk { tokens: inputs, r#type: "encoded_text" }] },
            loss_fn_inputs: LossInputs {
                target_tokens: Tensor { data: targets, dtype: "int64", shape },
                logprobs: floats(None),
                // Tinker's float tensors have 32 bits per value.
                advantages: floats(Some(advantage as f32)),
            },
        })
    }
}

/// A float per position: `on` (or the logprob) for trained tokens, and 0.0 for the others.
#[derive(Clone)]
struct OnMask<'a> {
    values: Zip<Iter<'a, f32>, Iter<'a, u8>>,
    on: Option<f32>,
}

impl Iterator for OnMask<'_> {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        let (&logprob, &mask) = self.values.next()?;
        Some(if mask == 1 { self.on.unwrap_or(logprob) } else { 0.0 })
    }
}

#[cfg(test)]
mod tests;
