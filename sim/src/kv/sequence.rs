//! The tokens of a request as a cache sees them: chained hashes of full blocks, and the blocks that hold them.

use std::num::NonZeroU32;

/// The tokens of one request, and the blocks of a [`KvCache`](super::KvCache) that the request uses.
///
/// A sequence stores a hash of 8 bytes per full block, not the tokens. It belongs to the cache that admitted it:
/// [`KvCache::free`](super::KvCache::free) must be called before it is dropped, or its blocks stay in use.
#[derive(Clone, Debug)]
pub struct Sequence {
    block_size: NonZeroU32,
    /// The number of tokens.
    tokens: usize,
    /// The number of tokens in the last block if that block is not full.
    open: u32,
    /// The hash of all tokens.
    state: u64,
    /// The hash of all tokens up to the end of each full block.
    pub(super) hashes: Vec<u64>,
    /// The ids of the blocks in use, in the order of their tokens.
    pub(super) blocks: Vec<u32>,
    /// The number of blocks, from the first, that are cached.
    pub(super) cached: usize,
    /// The number of times that the sequence lost its blocks to others.
    pub(super) preemptions: u32,
}

impl Sequence {
    /// Creates a sequence without blocks. `block_size` is the number of tokens per block of its cache.
    pub fn new(block_size: NonZeroU32, tokens: impl IntoIterator<Item = u32>) -> Self {
        let mut sequence = Self {
            block_size,
            tokens: 0,
            open: 0,
            // Any number serves as the hash of no tokens: the first digits of the square root of 2.
            state: 0x6a09_e667_f3bc_c908,
            hashes: Vec::new(),
            blocks: Vec::new(),
            cached: 0,
            preemptions: 0,
        };
        sequence.extend(tokens);
        sequence
    }

    /// Appends a token.
    pub fn push(&mut self, token: u32) {
        self.state = chained(self.state, token);
        self.tokens += 1;
        self.open += 1;
        if self.open == self.block_size.get() {
            self.open = 0;
            self.hashes.push(self.state);
        }
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.tokens
    }

    /// Returns whether the sequence has no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens == 0
    }

    /// Returns the number of blocks that the sequence uses.
    pub fn blocks_in_use(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the number of times that [`KvCache::preempt`](super::KvCache::preempt) took the blocks.
    pub fn preemptions(&self) -> u32 {
        self.preemptions
    }
}

impl Extend<u32> for Sequence {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, tokens: T) {
        for token in tokens {
            self.push(token);
        }
    }
}

/// Returns the hash of the tokens before `token` and of `token` itself.
fn chained(before: u64, token: u32) -> u64 {
    // The factor is that of SplitMix64. The shift carries the high bits, which all input bits reach, to the low bits.
    let product = (before ^ u64::from(token)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    product ^ (product >> 32)
}
