//! Harbor's two shapes of rollouts. They are separate formats, because a reader of one does not expect the other.
//!
//! [`HarborExporter`] writes the generic rollout of Harbor's documentation on training: one JSON line per branch,
//! `{"reward", "token_ids", "mask_ids"}`. It cannot represent logprobs, and the export reports this. `mask_ids` is the
//! loss mask. A trial without a reward has `null` as its reward and a mask of 0.
//!
//! [`HarborDetailsExporter`] writes the record that Harbor's own agents return: see [`details`].

pub mod details;

use std::io::Write;

use serde::Serialize;

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::float_text::finite;
use crate::export::shared::lines::{Lines, Tally};
use crate::export::shared::refusal::refuse_unfit;
use crate::export::shared::row_queries::has_versions;
pub use details::HarborDetailsExporter;

/// Writes the generic rollout `{"reward", "token_ids", "mask_ids"}` of Harbor's documentation. The module describes the
/// format.
#[derive(Debug)]
pub struct HarborExporter<W: Write> {
    lines: Lines<W>,
    told: Tally,
}

impl<W: Write> HarborExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { lines: Lines::new(out), told: Tally::default() }
    }
}

#[derive(Serialize)]
struct Generic<'a> {
    #[serde(serialize_with = "finite")]
    reward: Option<f64>,
    token_ids: &'a [i32],
    mask_ids: &'a [u8],
}

impl<W: Write> Exporter for HarborExporter<W> {
    /// # Errors
    /// The trial has images, or a reward that is not finite.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        for row in &trial.rows {
            let line = Generic { reward: trial.reward, token_ids: &row.token_ids, mask_ids: &row.loss_mask };
            self.lines.write(&row.trial_id, &line)?;
            self.told.add("rows: their logprobs", 1);
            self.told.add("rows: their trial and group", 1);
            self.told.add("rows: their policy versions", usize::from(has_versions(row)));
            self.told.add("rows: their advantages", usize::from(trial.advantage.is_some()));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.lines.finish()?;
        Ok(self.told.omissions())
    }
}

#[cfg(test)]
mod tests;
