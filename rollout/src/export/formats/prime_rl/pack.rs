//! Samples into micro-batches. prime-rl sorts a whole step by length first; here samples come one by one, so a few
//! micro-batches are kept open for the short ones to fill.

use crate::row::RolloutRow;

/// So many are open at once: what is held in memory is this times the sequence length.
const OPEN: usize = 8;

/// A branch as it is trained.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) row: RolloutRow,
    /// So many of its tokens, from the first.
    pub(super) kept: usize,
    /// Of each trained token.
    pub(super) advantage: f64,
    /// Per position, what the logits there are divided by.
    pub(super) temperatures: Vec<f64>,
}

/// Samples that are trained as one sequence, each with positions of its own.
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

    /// Puts a sample where it has room; gives a micro-batch that had to make room for it.
    pub(super) fn add(&mut self, sample: Sample) -> Option<MicroBatch> {
        let has_room = |batch: &&mut MicroBatch| batch.tokens + sample.kept <= self.seq_len;
        if let Some(batch) = self.open.iter_mut().find(has_room) {
            batch.add(sample);
            return None;
        }
        let full = if self.open.len() < OPEN { None } else { self.take() };
        let mut batch = MicroBatch::default();
        batch.add(sample);
        self.open.push(batch);
        full
    }

    /// The fullest, the first of them where several are.
    pub(super) fn take(&mut self) -> Option<MicroBatch> {
        let most = self.open.iter().map(|batch| batch.tokens).max()?;
        let index = self.open.iter().position(|batch| batch.tokens == most)?;
        Some(self.open.remove(index))
    }
}
