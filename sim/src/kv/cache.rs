//! The cache: admits sequences, shares and allocates blocks, and counts hits.

use std::num::NonZeroU32;

use super::blocks::BlockPool;
use super::sequence::Sequence;

/// A KV cache of a fixed number of blocks with automatic prefix caching.
#[derive(Clone, Debug)]
pub struct KvCache {
    block_size: NonZeroU32,
    pool: BlockPool,
    counts: CacheCounts,
}

/// The counts of a cache since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Tokens of admitted sequences, without those that were preempted before: `vllm:prefix_cache_queries_total`.
    pub queries: u64,
    /// Those of the `queries` that were cached: `vllm:prefix_cache_hits_total`.
    pub hits: u64,
    /// Preemptions: `vllm:num_preemptions_total`.
    pub preemptions: u64,
}

impl KvCache {
    /// Creates an empty cache of `blocks` blocks of `block_size` tokens. vLLM's block size is 16 on GPUs and 128 on CPUs.
    /// One of the blocks is the null block, so `blocks - 1` blocks are usable.
    pub fn new(blocks: u32, block_size: NonZeroU32) -> Self {
        Self { block_size, pool: BlockPool::new(blocks), counts: CacheCounts::default() }
    }

    /// Returns the number of tokens per block.
    pub fn block_size(&self) -> NonZeroU32 {
        self.block_size
    }

    /// Returns the number of tokens that the usable blocks can hold.
    pub fn capacity(&self) -> usize {
        self.pool.usable() * self.block()
    }

    /// Returns the number of usable blocks that no sequence uses. Cached blocks are among them.
    pub fn free_blocks(&self) -> usize {
        self.pool.free()
    }

    /// Returns the share of the usable blocks that sequences use, from 0 to 1: `vllm:kv_cache_usage_perc`.
    pub fn usage(&self) -> f64 {
        match self.pool.usable() {
            0 => 0.0,
            usable => 1.0 - self.pool.free() as f64 / usable as f64,
        }
    }

    /// Returns the counts since the creation.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// Gives a sequence without blocks the cached blocks of its first `tokens` tokens, and returns how many tokens they
    /// hold. The others get their blocks by [`KvCache::extend`].
    ///
    /// Returns `None` if the free blocks do not suffice for all `tokens` tokens. The sequence then has no blocks.
    pub fn admit(&mut self, sequence: &mut Sequence, tokens: usize) -> Option<usize> {
        debug_assert!(sequence.blocks.is_empty(), "an admitted sequence has no blocks yet");
        // A hit that is in the free queue leaves the queue, so it counts like an allocated block.
        let mut evictable = 0;
        for hash in sequence.hashes.iter().take(tokens.saturating_sub(1) / self.block()) {
            let Some((block, is_free)) = self.pool.find(*hash) else { break };
            sequence.blocks.push(block);
            evictable += usize::from(is_free);
        }
        if evictable + self.missing_blocks(sequence, tokens) > self.pool.free() {
            sequence.blocks.clear();
            return None;
        }
        for block in &sequence.blocks {
            self.pool.share(*block);
        }
        sequence.cached = sequence.blocks.len();
        let cached_tokens = sequence.cached * self.block();
        if sequence.preemptions == 0 {
            self.counts.queries += tokens as u64;
            self.counts.hits += cached_tokens as u64;
        }
        Some(cached_tokens)
    }

    /// Allocates blocks until the sequence has room for its first `tokens` tokens, and caches those that are full.
    ///
    /// Returns false, and changes nothing, if too few blocks are free.
    pub fn extend(&mut self, sequence: &mut Sequence, tokens: usize) -> bool {
        let missing = self.missing_blocks(sequence, tokens);
        if missing > self.pool.free() {
            return false;
        }
        for _ in 0..missing {
            sequence.blocks.extend(self.pool.allocate());
        }
        let full = tokens.min(sequence.len()) / self.block();
        // Most extensions by one token fill no block.
        let new = sequence.cached..full.max(sequence.cached);
        if let (Some(blocks), Some(hashes)) =
            (sequence.blocks.get(new.clone()), sequence.hashes.get(new.clone()))
        {
            for (block, hash) in blocks.iter().zip(hashes) {
                self.pool.cache(*block, *hash);
            }
            sequence.cached = new.end;
        }
        true
    }

    /// Frees the blocks of a sequence. Their tokens stay cached until the blocks are allocated again.
    pub fn free(&mut self, sequence: &mut Sequence) {
        // The last block is the least useful to others, so it is evicted first.
        self.pool.release(sequence.blocks.drain(..).rev());
        sequence.cached = 0;
    }

    /// Frees the blocks of a sequence that has not ended. Its next admission is not counted in
    /// [`CacheCounts::queries`].
    pub fn preempt(&mut self, sequence: &mut Sequence) {
        self.free(sequence);
        sequence.preemptions += 1;
        self.counts.preemptions += 1;
    }

    /// Returns the number of blocks that [`KvCache::extend`] would allocate.
    pub(super) fn missing_blocks(&self, sequence: &Sequence, tokens: usize) -> usize {
        tokens.div_ceil(self.block()).saturating_sub(sequence.blocks.len())
    }

    fn block(&self) -> usize {
        self.block_size.get() as usize
    }
}

#[cfg(test)]
mod tests;
