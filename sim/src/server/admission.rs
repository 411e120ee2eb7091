//! The KV cache of a simulator: requests wait for blocks in the order of their arrival, and hold them until they end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use crate::kv::{KvCache, Sequence};

/// The cache of a simulator with a limited number of blocks, and the requests that wait for blocks.
#[derive(Debug)]
pub(crate) struct Admission {
    cache: Mutex<KvCache>,
    /// The first waiting request has the permit. The others wait for the permit in their order.
    first: Semaphore,
    /// Notified when blocks become free. Only the first waiting request listens.
    freed: Notify,
    waiting: AtomicU64,
}

/// The blocks of a request. Dropping it frees them.
#[derive(Debug)]
pub(crate) struct HeldBlocks {
    admission: Arc<Admission>,
    /// The prompt and each answer.
    sequences: Vec<Sequence>,
    /// The number of cached tokens of each prompt.
    cached: Vec<usize>,
}

impl Admission {
    pub(crate) fn new(cache: KvCache) -> Self {
        let (first, freed, waiting) = (Semaphore::new(1), Notify::new(), AtomicU64::new(0));
        Self { cache: Mutex::new(cache), first, freed, waiting }
    }

    /// Waits until the prompt of a request fits in the cache, and takes its blocks.
    ///
    /// As in vLLM, each of several answers has its own sequence, and all share the full blocks of the prompt. Unlike in
    /// vLLM, only the first waits. The others hold no block as long as too few are free.
    pub(crate) async fn admit(self: Arc<Self>, prompt: Sequence, answers: usize) -> HeldBlocks {
        let waiting = Waiting::count(&self.waiting);
        let mut held = HeldBlocks {
            admission: Arc::clone(&self),
            sequences: vec![prompt; answers],
            cached: Vec::with_capacity(answers),
        };
        // The semaphore is never closed, so this is no error.
        let first = self.first.acquire().await;
        while !held.admit() {
            self.freed.notified().await;
        }
        drop((first, waiting));
        held
    }

    /// Returns the number of requests that wait for blocks.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Locks the cache for a moment.
    pub(crate) fn cache(&self) -> MutexGuard<'_, KvCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldBlocks {
    /// Takes the blocks of the prompts. Returns false if not even the first prompt fits.
    fn admit(&mut self) -> bool {
        let mut cache = self.admission.cache();
        for sequence in &mut self.sequences {
            let tokens = sequence.len();
            match cache.admit(sequence, tokens) {
                Some(cached) => {
                    cache.extend(sequence, tokens);
                    self.cached.push(cached);
                }
                None if self.cached.is_empty() => return false,
                None => self.cached.push(0),
            }
        }
        true
    }

    /// Appends sampled tokens to an answer.
    ///
    /// An answer that finds no free block continues without one, and takes its missing blocks once enough are free. vLLM
    /// preempts the newest request instead.
    pub(crate) fn append(&mut self, answer: usize, tokens: &[u32]) {
        let Some(sequence) = self.sequences.get_mut(answer) else { return };
        let mut cache = self.admission.cache();
        for token in tokens {
            // A token is computed in the step after the one that sampled it, so the newest token needs no room yet.
            let computed = sequence.len();
            cache.extend(sequence, computed);
            sequence.push(*token);
        }
    }

    /// Returns the number of tokens per block.
    pub(crate) fn block_size(&self) -> u32 {
        self.admission.cache().block_size().get()
    }

    /// Returns the number of cached tokens of the first prompt.
    pub(crate) fn cached_tokens(&self) -> u32 {
        self.cached.first().map_or(0, |cached| *cached as u32)
    }

    /// Returns the number of tokens that are computed for a prompt of this length, over all answers.
    pub(crate) fn uncached_tokens(&self, prompt: usize) -> usize {
        self.cached.iter().map(|cached| prompt.saturating_sub(*cached)).sum()
    }
}

impl Drop for HeldBlocks {
    fn drop(&mut self) {
        let mut cache = self.admission.cache();
        for sequence in &mut self.sequences {
            cache.free(sequence);
        }
        drop(cache);
        self.admission.freed.notify_one();
    }
}

/// Counts a waiting request until it is dropped, which happens early if the caller disconnects.
struct Waiting<'a>(&'a AtomicU64);

impl<'a> Waiting<'a> {
    fn count(waiting: &'a AtomicU64) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
