//! A model of vLLM's KV cache and scheduler: pure, synchronous, and without a model.
//!
//! [`KvCache`] has a fixed number of blocks and vLLM's automatic prefix caching. [`Engine`] schedules requests on a
//! [`KvCache`] in virtual time. The rules are those of vLLM 0.32 (its engine V1) for a model with full attention, without
//! speculative decoding, LoRA and KV connectors. Tests compare the engine with recorded schedules of vLLM's own scheduler.
//!
//! # Rules
//!
//! - A block has the keys and values of [`block_size`](KvCache::block_size) tokens. Block 0, the null block, is never
//!   allocated.
//! - A full block is cached under a hash of its own tokens and of all tokens before them. A block is cached when the step
//!   that fills it is scheduled. Two blocks with equal tokens are both cached, and a lookup finds the older one.
//! - A new request shares the cached blocks of the longest known prefix. Its last token is always computed, so at most
//!   the full blocks among its first `tokens - 1` tokens are hits.
//! - The free queue has the order of eviction. Cached blocks of a finished request are appended to its end, the last block
//!   first. A block that is not cached is put at its front. An allocation takes the front, and forgets the hash.
//! - A waiting request is admitted only if the free blocks suffice for all its tokens, even if a step computes only a part
//!   of them (`scheduler_reserve_full_isl`).
//!
//! # Differences from vLLM
//!
//! - Hashes have 64 bits and are not cryptographic. An engine of vLLM hashes with SHA-256.
//! - Steps do not overlap. With asynchronous scheduling, vLLM frees the blocks of a finished request one step later.

mod blocks;
mod cache;
mod engine;
mod sequence;

pub use self::cache::{CacheCounts, KvCache};
pub use self::engine::{Engine, EngineSettings, Finished, StepPrice, SubmitError};
pub use self::sequence::Sequence;
