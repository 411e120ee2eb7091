//! The rules of vLLM's block pool, and the invariants that hold after any operations.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Returns a cache of blocks of four tokens. `usable` excludes the null block.
fn cache(usable: u32) -> KvCache {
    KvCache::new(usable + 1, size(4))
}

fn size(tokens: u32) -> NonZeroU32 {
    NonZeroU32::new(tokens).unwrap()
}

fn sequence(tokens: impl IntoIterator<Item = u32>) -> Sequence {
    Sequence::new(size(4), tokens)
}

/// Admits and computes all tokens of a sequence. Returns the sequence and its number of cached tokens.
fn computed(cache: &mut KvCache, tokens: impl IntoIterator<Item = u32>) -> (Sequence, usize) {
    let mut sequence = sequence(tokens);
    let tokens = sequence.len();
    let cached = cache.admit(&mut sequence, tokens).unwrap();
    assert!(cache.extend(&mut sequence, tokens));
    (sequence, cached)
}

#[test]
fn the_null_block_is_not_usable() {
    let mut cache = cache(3);
    assert_eq!((cache.capacity(), cache.free_blocks()), (12, 3));
    let (mut all, _) = computed(&mut cache, 0..12);
    assert!(!all.blocks.contains(&0));
    assert!((cache.usage() - 1.0).abs() < f64::EPSILON);
    assert_eq!(cache.admit(&mut sequence([99]), 1), None);
    cache.free(&mut all);
    assert!(cache.usage().abs() < f64::EPSILON);
    for blocks in [0, 1] {
        let mut none = KvCache::new(blocks, size(4));
        assert_eq!(none.admit(&mut sequence([1]), 1), None);
        assert!(none.usage().abs() < f64::EPSILON);
    }
}

#[test]
fn the_last_token_is_always_computed() {
    let mut cache = cache(8);
    let (mut first, cached) = computed(&mut cache, 0..8);
    assert_eq!(cached, 0);
    cache.free(&mut first);
    let (_eight, cached) = computed(&mut cache, 0..8);
    assert_eq!(cached, 4, "the block with the last token is computed again");
    let (_nine, cached) = computed(&mut cache, 0..9);
    assert_eq!(cached, 8);
    let (_seven, cached) = computed(&mut cache, 0..7);
    assert_eq!(cached, 4, "hits are whole blocks");
    assert_eq!(cache.counts(), CacheCounts { queries: 8 + 8 + 9 + 7, hits: 4 + 8 + 4, preemptions: 0 });
}

#[test]
fn a_hash_depends_on_all_earlier_tokens() {
    let mut cache = cache(8);
    let (_one, _) = computed(&mut cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let (_other, cached) = computed(&mut cache, [0, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(cached, 0);
}

#[test]
fn running_requests_share_blocks() {
    let mut cache = cache(4);
    let (mut one, _) = computed(&mut cache, 0..9);
    let (mut two, cached) = computed(&mut cache, (0..8).chain([99]));
    assert_eq!((cached, cache.free_blocks()), (8, 0));
    assert_eq!(one.blocks[..2], two.blocks[..2]);
    cache.free(&mut one);
    assert_eq!(cache.free_blocks(), 1, "the shared blocks are in use");
    cache.free(&mut two);
    assert_eq!(cache.free_blocks(), 4);
}

#[test]
fn a_partial_block_is_allocated_before_cached_ones() {
    let mut cache = cache(4);
    let (mut one, _) = computed(&mut cache, 0..6);
    let partial = one.blocks[1];
    cache.free(&mut one);
    let (next, _) = computed(&mut cache, [99]);
    assert_eq!(next.blocks, [partial]);
}

#[test]
fn eviction_begins_with_the_end_of_the_request_freed_first() {
    let mut cache = cache(5);
    let (mut old, _) = computed(&mut cache, 0..8);
    let (mut new, _) = computed(&mut cache, 100..108);
    let order: Vec<u32> = [&old, &new].iter().flat_map(|freed| freed.blocks.iter().rev().copied()).collect();
    cache.free(&mut old);
    cache.free(&mut new);
    // The fifth block was never in use, so it is in front of the cached ones.
    assert_eq!(cache.pool.free_queue()[1..], order);
    let (_two_blocks, _) = computed(&mut cache, 200..208);
    for (first, cached) in [(0, 4), (100, 8)] {
        assert_eq!(cache.clone().admit(&mut sequence(first..first + 9), 9), Some(cached));
    }
}

#[test]
fn a_hit_leaves_the_free_queue() {
    let mut cache = cache(3);
    let (mut old, _) = computed(&mut cache, 0..4);
    cache.free(&mut old);
    let (_new, cached) = computed(&mut cache, 0..5);
    assert_eq!(cached, 4);
    let (_last, _) = computed(&mut cache, [99]);
    assert_eq!(cache.free_blocks(), 0);
    assert_eq!(cache.admit(&mut sequence(0..5), 5), None, "no block is free for the fifth token");
}

#[test]
fn free_hits_count_as_needed_blocks() {
    let mut cache = cache(3);
    let (mut old, _) = computed(&mut cache, 0..8);
    cache.free(&mut old);
    let (_other, _) = computed(&mut cache, [99]);
    assert_eq!(cache.free_blocks(), 2);
    // Two hits are free and a third block is missing.
    let mut long = sequence(0..9);
    assert_eq!(cache.admit(&mut long, 9), None);
    assert_eq!((long.blocks_in_use(), cache.free_blocks()), (0, 2));
    assert_eq!(cache.counts().queries, 8 + 1, "a request that waits is not counted");
}

#[test]
fn a_block_is_cached_when_sampled_tokens_fill_it() {
    let mut cache = cache(4);
    let (mut running, _) = computed(&mut cache, 0..6);
    let hits = |cache: &KvCache| cache.clone().admit(&mut sequence(0..9), 9).unwrap();
    for (token, cached) in [(6, 4), (7, 8)] {
        running.push(token);
        assert!(cache.extend(&mut running, token as usize + 1));
        assert_eq!(hits(&cache), cached, "after token {token}");
    }
    assert_eq!(running.blocks_in_use(), 2);
    running.push(8);
    assert!(cache.extend(&mut running, 9));
    assert_eq!(running.blocks_in_use(), 3);
}

#[test]
fn an_extension_without_blocks_changes_nothing() {
    let mut cache = cache(2);
    let (mut one, _) = computed(&mut cache, 0..4);
    let (_two, _) = computed(&mut cache, [99]);
    one.push(4);
    assert!(!cache.extend(&mut one, 5));
    assert_eq!((one.blocks_in_use(), cache.free_blocks()), (1, 0));
}

#[test]
fn equal_blocks_are_cached_side_by_side() {
    let mut cache = cache(6);
    let (mut older, _) = computed(&mut cache, 0..4);
    let (mut newer, cached) = computed(&mut cache, 0..4);
    assert_eq!(cached, 0);
    assert_ne!(older.blocks, newer.blocks);
    let (mut hit, _) = computed(&mut cache, 0..5);
    assert_eq!(hit.blocks[0], older.blocks[0], "a lookup finds the older block");
    for sequence in [&mut hit, &mut older] {
        cache.free(sequence);
    }
    // Evict everything except the newer block, which is in use.
    let (mut filler, _) = computed(&mut cache, 100..120);
    cache.free(&mut filler);
    let (hit, cached) = computed(&mut cache, 0..5);
    assert_eq!((hit.blocks[0], cached), (newer.blocks[0], 4));
    cache.free(&mut newer);
}

#[test]
fn a_preempted_request_is_not_counted_again() {
    let mut cache = cache(4);
    let (mut one, _) = computed(&mut cache, 0..8);
    cache.preempt(&mut one);
    assert_eq!(cache.free_blocks(), 4);
    one.push(8);
    assert_eq!(cache.admit(&mut one, 9), Some(8), "its own blocks are still cached");
    assert_eq!(cache.counts(), CacheCounts { queries: 8, hits: 0, preemptions: 1 });
    assert_eq!(one.preemptions(), 1);
}

/// An operation on one of the running sequences, which `pick` chooses.
#[derive(Clone, Debug)]
enum Operation {
    Start { tokens: Vec<u32>, known: usize },
    Grow { pick: usize, by: usize },
    Free { pick: usize },
    Preempt { pick: usize },
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    // Few different tokens, so that prefixes and whole blocks are often equal.
    let start = (prop::collection::vec(0..2_u32, 1..40), 1..40_usize)
        .prop_map(|(tokens, known)| Operation::Start { known: known.min(tokens.len()), tokens });
    let operation = prop_oneof![
        3 => start,
        4 => (any::<usize>(), 1..9_usize).prop_map(|(pick, by)| Operation::Grow { pick, by }),
        2 => any::<usize>().prop_map(|pick| Operation::Free { pick }),
        1 => any::<usize>().prop_map(|pick| Operation::Preempt { pick }),
    ];
    prop::collection::vec(operation, 0..60)
}

/// Checks the references, the free queue and the counts.
fn check(cache: &KvCache, running: &[(Sequence, usize)]) {
    let mut owners: HashMap<u32, u32> = HashMap::new();
    for (sequence, computed) in running {
        assert_eq!(sequence.blocks.len(), computed.div_ceil(4));
        assert!(sequence.cached <= sequence.blocks.len());
        for (index, block) in sequence.blocks.iter().enumerate() {
            *owners.entry(*block).or_default() += 1;
            assert!(!sequence.blocks[..index].contains(block), "a sequence has a block twice");
            let is_full = (index + 1) * 4 <= *computed;
            assert_eq!(cache.pool.hash(*block), is_full.then(|| sequence.hashes[index]));
        }
    }
    assert!(!owners.contains_key(&0), "the null block is in use");
    for (block, references) in &owners {
        assert_eq!(cache.pool.references(*block), *references);
    }
    let free = cache.pool.free_queue();
    assert_eq!(free.len(), cache.free_blocks());
    assert!(free.iter().all(|block| !owners.contains_key(block)));
    assert_eq!(free.len() + owners.len(), cache.capacity() / 4);
    assert!(cache.counts().hits <= cache.counts().queries);
}

proptest! {
    #[test]
    fn invariants_hold(operations in operations(), usable in 1..24_u32) {
        let mut cache = cache(usable);
        let mut running: Vec<(Sequence, usize)> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Start { tokens, known } => {
                    let mut started = sequence(tokens);
                    let free = cache.free_blocks();
                    if let Some(cached) = cache.admit(&mut started, known) {
                        prop_assert!(cached < known && cached % 4 == 0);
                        prop_assert!(cache.extend(&mut started, known), "an admitted sequence fits");
                        running.push((started, known));
                    } else {
                        prop_assert_eq!(free, cache.free_blocks());
                        prop_assert!(free < known.div_ceil(4));
                    }
                }
                Operation::Grow { pick, by } if !running.is_empty() => {
                    let pick = pick % running.len();
                    let (sequence, computed) = &mut running[pick];
                    let tokens = (*computed + by).min(sequence.len());
                    if cache.extend(sequence, tokens) {
                        *computed = tokens;
                    }
                }
                Operation::Free { pick } if !running.is_empty() => {
                    let (mut sequence, _) = running.remove(pick % running.len());
                    cache.free(&mut sequence);
                }
                Operation::Preempt { pick } if !running.is_empty() => {
                    let (mut sequence, _) = running.remove(pick % running.len());
                    cache.preempt(&mut sequence);
                }
                _ => {}
            }
            check(&cache, &running);
        }
        for (sequence, _) in &mut running {
            cache.free(sequence);
        }
        check(&cache, &[]);
        prop_assert_eq!(cache.free_blocks(), usable as usize);
    }
}
