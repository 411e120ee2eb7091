//! Packed micro-batches of prime-rl: a list of `MicroBatch` in positional msgpack, which its trainer reads from
//! `rollouts/step_N/rank_R.bin`. The layout is that of August 2026, commit 559b447. It is internal to prime-rl and has
//! no version number, so other commits may differ.
//!
//! A branch is a sample. It has its own positions from 0. Per token it has a mask, an advantage, a logprob (0.0 for
//! tokens that are not trained) and the divisor of the logits. Samples are packed one after the other up to the
//! sequence length, each into the first of several open micro-batches with room. A file has the data of one rank for
//! one step. For several ranks, distribute its micro-batches in equal numbers.
//!
//! - prime-rl's orchestrator has computed advantages from rewards before this point, so a trial without an advantage is
//!   rejected. The format cannot represent rewards and groups. A branch without trained tokens is omitted.
//! - A sample longer than the sequence length is truncated, as in prime-rl.
//! - The trainer divides the logits at a position, which predict the token **after** it. A token's temperature is
//!   one position before it for this reason. With `raw_logprobs` it is 1, because those logits were not divided.
//! - The list's length comes before the micro-batches, so the output must be seekable.

mod pack;
mod wire;

use std::io::{Seek, SeekFrom, Write};

use crate::export::exporter::{ExportError, Exporter, Omission, Trial};
use crate::export::shared::lines::{Tally, refused};
use crate::export::shared::refusal::{advantage, refuse_unfit};
use crate::export::shared::row_queries::has_versions;
use crate::export::shared::temperature::divisor;
use crate::export::shared::turn::turns;
use crate::row::RolloutRow;
use pack::{MicroBatch, Packer, Sample};

/// The options from prime-rl's own configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct PrimeRlOptions {
    /// The maximal number of tokens of a micro-batch: the trainer's `model.seq_len`.
    pub seq_len: usize,
    /// Micro-batches are padded to a multiple of this number of tokens. 1 for no padding.
    pub pad_to_multiple_of: usize,
    /// The name under which prime-rl reports these samples. It reserves `all` for itself.
    pub env_name: String,
    /// The temperature of calls without a recorded one. `None` to reject such calls.
    pub assumed_temperature: Option<f64>,
}

impl Default for PrimeRlOptions {
    fn default() -> Self {
        Self {
            seq_len: 32_768,
            pad_to_multiple_of: 1,
            env_name: "rolltap".to_owned(),
            assumed_temperature: None,
        }
    }
}

/// Writes a list of `MicroBatch` as of prime-rl 559b447. The module describes the format.
#[derive(Debug)]
pub struct PrimeRlExporter<W: Write + Seek> {
    out: W,
    options: PrimeRlOptions,
    packer: Packer,
    /// The position of the list in `out`, or `None` before the first write.
    start: Option<u64>,
    batches: u32,
    buffer: Vec<u8>,
    told: Tally,
}

impl<W: Write + Seek> PrimeRlExporter<W> {
    /// Returns an exporter. Nothing is written yet.
    pub fn new(out: W, options: PrimeRlOptions) -> Self {
        let packer = Packer::new(options.seq_len);
        Self { out, options, packer, start: None, batches: 0, buffer: Vec::new(), told: Tally::default() }
    }

    fn add(&mut self, row: RolloutRow, advantage: f64) -> Result<(), ExportError> {
        // prime-rl truncates longer samples too, so the loss of tokens is only reported.
        let kept = row.token_ids.len().min(self.options.seq_len);
        let told = &mut self.told;
        let trained_of = |masks: &[u8]| masks.iter().filter(|&&mask| mask == 1).count();
        let trained = trained_of(row.loss_mask.get(..kept).unwrap_or_default());
        let is_cut = usize::from(kept < row.token_ids.len());
        told.add("rows: what of them is beyond the sequence length", is_cut);
        told.add("trained tokens: beyond the sequence length", trained_of(&row.loss_mask) - trained);
        // After truncation: the trained tokens may all be beyond the limit.
        if trained == 0 {
            told.add("rows: nothing in them is trained", 1);
            return Ok(());
        }
        told.add("rows: their trial, group and reward (a micro-batch has the advantage alone)", 1);
        told.add("rows: their policy versions", usize::from(has_versions(&row)));
        let temperatures = temperatures(&row, self.options.assumed_temperature)?;
        match self.packer.add(Sample { row, kept, advantage, temperatures }) {
            Some(full) => self.write_batch(&full),
            None => Ok(()),
        }
    }

    fn write_batch(&mut self, batch: &MicroBatch) -> Result<(), ExportError> {
        self.begin()?;
        self.buffer.clear();
        wire::encode(&mut self.buffer, batch, &self.options)?;
        self.out.write_all(&self.buffer)?;
        self.batches = self.batches.saturating_add(1);
        Ok(())
    }

    /// Writes the header of a list with a preliminary length.
    fn begin(&mut self) -> Result<(), ExportError> {
        if self.start.is_none() {
            self.start = Some(self.out.stream_position()?);
            self.out.write_all(&wire::list_header(0))?;
        }
        Ok(())
    }
}

impl<W: Write + Seek> Exporter for PrimeRlExporter<W> {
    /// # Errors
    /// The trial has images, trained tokens without an advantage, or logprobs with a temperature that is
    /// unknown or 0.
    fn write(&mut self, trial: Trial) -> Result<(), ExportError> {
        refuse_unfit(&trial)?;
        let advantage = advantage(&trial)?.unwrap_or_default();
        trial.rows.into_iter().try_for_each(|row| self.add(row, advantage))
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Omission>, ExportError> {
        self.begin()?;
        while let Some(batch) = self.packer.take() {
            self.write_batch(&batch)?;
        }
        // The number of micro-batches is known only now, so it replaces the preliminary length.
        self.out.seek(SeekFrom::Start(self.start.unwrap_or_default()))?;
        self.out.write_all(&wire::list_header(self.batches))?;
        self.out.seek(SeekFrom::End(0))?;
        self.out.flush()?;
        Ok(self.told.omissions())
    }
}

/// Returns the divisor of the logits per position, which is that of the next token. 1 if that token is not trained.
fn temperatures(row: &RolloutRow, assumed: Option<f64>) -> Result<Vec<f64>, ExportError> {
    let mut temperatures = vec![1.0; row.token_ids.len()];
    for turn in turns(row)?.iter().filter(|turn| turn.loss_mask().contains(&1)) {
        let divisor = divisor(row, turn, assumed)?;
        let Some(before) = turn.answer.start.checked_sub(1) else {
            return Err(refused(
                row,
                "its first token is trained, and there is none before it to predict it from",
            ));
        };
        let places = temperatures.get_mut(before..turn.answer.end.saturating_sub(1));
        places.into_iter().flatten().for_each(|place| *place = divisor);
    }
    Ok(temperatures)
}

#[cfg(test)]
mod tests;
