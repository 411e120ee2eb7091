//! The blocks of a cache: the order in which the free ones are evicted, and the hashes of the cached ones.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The id of the null block. It is also the sentinel of the free queue.
const NULL: u32 = 0;

/// All blocks of a cache. An id that belongs to no block denotes the null block.
#[derive(Clone, Debug)]
pub(super) struct BlockPool {
    /// The sentinel of the free queue. `next` is the front of the queue, and `previous` its end.
    null: Block,
    /// The blocks from id 1.
    blocks: Vec<Block>,
    /// The number of blocks in the free queue.
    free: usize,
    /// The oldest cached block of each hash.
    by_hash: HashMap<u64, u32, BuildHasherDefault<HashIsKey>>,
}

/// One block.
#[derive(Clone, Debug, Default)]
struct Block {
    /// The hash of the block's tokens and of all tokens before them. `None` if the block is not cached.
    hash: Option<u64>,
    /// The number of sequences that use the block. A block without references is in the free queue.
    references: u32,
    /// The neighbour towards the front of the free queue.
    previous: u32,
    /// The neighbour towards the end of the free queue.
    next: u32,
    /// The next newer block with the same hash, or [`NULL`].
    newer: u32,
}

impl BlockPool {
    /// Creates a pool of `blocks` blocks with the null block among them. All others are free.
    pub(super) fn new(blocks: u32) -> Self {
        let usable = blocks.saturating_sub(1);
        let mut pool = Self {
            null: Block::default(),
            blocks: vec![Block::default(); usable as usize],
            free: 0,
            by_hash: HashMap::default(),
        };
        for id in 1..=usable {
            pool.insert_before(id, NULL);
        }
        pool
    }

    /// Returns the number of blocks without the null block.
    pub(super) fn usable(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the number of blocks that no sequence uses.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// Returns the oldest block that is cached under `hash`, and whether it is in the free queue.
    pub(super) fn find(&self, hash: u64) -> Option<(u32, bool)> {
        let id = *self.by_hash.get(&hash)?;
        Some((id, self.get(id).references == 0))
    }

    /// Adds a reference to a block, and takes it out of the free queue if it is there.
    pub(super) fn share(&mut self, id: u32) {
        if self.get(id).references == 0 {
            self.unlink(id);
        }
        self.get_mut(id).references += 1;
    }

    /// Takes the block at the front of the free queue and forgets its hash. Returns `None` if no block is free.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        let id = self.null.next;
        if id == NULL {
            return None;
        }
        self.unlink(id);
        self.forget(id);
        self.get_mut(id).references = 1;
        Some(id)
    }

    /// Caches a block that has no hash yet.
    pub(super) fn cache(&mut self, id: u32, hash: u64) {
        self.get_mut(id).hash = Some(hash);
        let Some(oldest) = self.by_hash.get(&hash) else {
            self.by_hash.insert(hash, id);
            return;
        };
        let mut newest = *oldest;
        while self.get(newest).newer != NULL {
            newest = self.get(newest).newer;
        }
        self.get_mut(newest).newer = id;
    }

    /// Removes a reference from each of a sequence's blocks, given from the last block to the first. Blocks without
    /// further references become free.
    pub(super) fn release(&mut self, blocks: impl Iterator<Item = u32>) {
        // The blocks of a sequence that are not cached are its last, so they come before all cached ones.
        let front = self.null.next;
        for id in blocks {
            let block = self.get_mut(id);
            block.references = block.references.saturating_sub(1);
            if block.references == 0 {
                let next = if block.hash.is_none() { front } else { NULL };
                self.insert_before(id, next);
            }
        }
    }

    /// Removes the hash of a block, so that no lookup finds the block.
    fn forget(&mut self, id: u32) {
        let Some(hash) = self.get_mut(id).hash.take() else { return };
        let newer = std::mem::replace(&mut self.get_mut(id).newer, NULL);
        let Some(oldest) = self.by_hash.get(&hash).copied() else { return };
        if oldest != id {
            let mut older = oldest;
            while self.get(older).newer != id && self.get(older).newer != NULL {
                older = self.get(older).newer;
            }
            self.get_mut(older).newer = newer;
        } else if newer == NULL {
            self.by_hash.remove(&hash);
        } else {
            self.by_hash.insert(hash, newer);
        }
    }

    fn insert_before(&mut self, id: u32, next: u32) {
        let previous = std::mem::replace(&mut self.get_mut(next).previous, id);
        self.get_mut(previous).next = id;
        let block = self.get_mut(id);
        (block.previous, block.next) = (previous, next);
        self.free += 1;
    }

    fn unlink(&mut self, id: u32) {
        let &Block { previous, next, .. } = self.get(id);
        self.get_mut(previous).next = next;
        self.get_mut(next).previous = previous;
        self.free -= 1;
    }

    fn get(&self, id: u32) -> &Block {
        // `NULL` wraps around to an index that no block has.
        self.blocks.get(id.wrapping_sub(1) as usize).unwrap_or(&self.null)
    }

    fn get_mut(&mut self, id: u32) -> &mut Block {
        self.blocks.get_mut(id.wrapping_sub(1) as usize).unwrap_or(&mut self.null)
    }
}

/// A hasher of keys that are hashes already.
#[derive(Clone, Debug, Default)]
struct HashIsKey(u64);

impl Hasher for HashIsKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests {
    //! The state of the pool, for the tests of the cache.

    use super::*;

    impl BlockPool {
        /// Returns the ids of the free queue from its front, and checks the links in the other direction.
        pub(in crate::kv) fn free_queue(&self) -> Vec<u32> {
            let mut ids = Vec::new();
            let (mut before, mut id) = (NULL, self.null.next);
            while id != NULL {
                assert_eq!((self.get(id).previous, self.get(id).references), (before, 0));
                ids.push(id);
                (before, id) = (id, self.get(id).next);
            }
            assert_eq!(self.null.previous, before);
            ids
        }

        pub(in crate::kv) fn references(&self, id: u32) -> u32 {
            self.get(id).references
        }

        pub(in crate::kv) fn hash(&self, id: u32) -> Option<u64> {
            self.get(id).hash
        }
    }
}
