//! Packs samples into micro-batches. prime-rl sorts a whole step by length first. Here samples arrive one by one, so
//! several micro-batches stay open for short samples.

use crate::row::RolloutRow;

/// The number of open micro-batches. The memory limit is this number times the sequence length.
const OPEN: usize = 8;

/// A branch as a training sample.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) row: RolloutRow,
    /// The number of its first tokens that are packed.
    pub(super) kept: usize,
    /// The advantage of each trained token.
    pub(super) advantage: f64,
    /// The divisor of the logits per position.
    pub(super) temperatures: Vec<f64>,
}

/// Samples that are trained as one sequence, each with its own positions.
#[derive(Debug, Default)]
pub(super) struct MicroBatch {
    pub(super) samples: Vec<Sample>,
    pub(super) tokens: usize,
}

impl MicroBatch {
    fn add(&mut self, sample: Sample) {
        self.tokens += sample.kept;
        self.samples.push(sample);
    }
}

#[derive(Debug)]
pub(super) struct Packer {
    seq_len: usize,
    open: Vec<MicroBatch>,
}

impl Packer {
    pub(super) fn new(seq_len: usize) -> Self {
        Self { seq_len, open: Vec::new() }
    }

    /// Packs a sample. Returns a micro-batch if it was removed to make room.
    pub(super) fn add(&mut self, sample: Sample) -> Option<MicroBatch> {
        let has_room = |batch: &&mut MicroBatch| batch.tokens + sample.kept <= self.seq_len;
        if let Some(batch) = self.open.iter_mut().find(has_room) {
            batch.add(sample);
            return None;
        }
        // The fullest batch has the least room for later samples, so its removal costs least.
        let full = if self.open.len() < OPEN { None } else { self.take() };
        let mut batch = MicroBatch::default();
        batch.add(sample);
        self.open.push(batch);
        full
    }

    /// Removes the fullest micro-batch, the first one if several are equally full.
    pub(super) fn take(&mut self) -> Option<MicroBatch> {
        let most = self.open.iter().map(|batch| batch.tokens).max()?;
        let index = self.open.iter().position(|batch| batch.tokens == most)?;
        Some(self.open.remove(index))
    }
}
