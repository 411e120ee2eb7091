//! The rules of vLLM's scheduler, and the equality of jumps and single steps.

mod recorded;

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

/// A price whose parts can be told apart in a duration.
const PRICE: StepPrice = StepPrice { step: 1.0, per_prefill_token: 0.01, per_decode_token: 0.1 };

/// Returns an engine with `usable` blocks of four tokens.
fn engine(usable: u32, max_num_seqs: usize, max_num_batched_tokens: usize) -> Engine {
    let settings = EngineSettings {
        max_num_seqs: NonZeroUsize::new(max_num_seqs).unwrap(),
        max_num_batched_tokens: NonZeroUsize::new(max_num_batched_tokens).unwrap(),
        price: PRICE,
    };
    Engine::new(settings, KvCache::new(usable + 1, NonZeroU32::new(4).unwrap()))
}

/// Returns `count` tokens that no other `start` has.
fn tokens(start: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |index| start * 1000 + index)
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

/// Completes steps until the engine is idle.
fn finish_all(engine: &mut Engine) -> Vec<Finished> {
    let mut finished = Vec::new();
    while engine.next_step_end().is_some() {
        finished.extend(engine.complete_step());
    }
    assert_eq!((engine.running(), engine.waiting()), (0, 0));
    finished
}

#[test]
fn one_request_takes_a_prefill_and_its_decodes() {
    let mut engine = engine(10, 4, 100);
    assert_eq!(engine.next_step_end(), None);
    assert!(engine.complete_step().is_empty());
    engine.submit(5.0, 7, tokens(1, 10), tokens(2, 3)).unwrap();
    assert!(close(engine.next_step_end().unwrap(), 5.0 + 1.0 + 10.0 * 0.01));
    assert!(engine.complete_step().is_empty(), "the first of three tokens");
    // Both decodes are one jump.
    assert!(close(engine.next_step_end().unwrap(), 6.1 + 2.0 * 1.1));
    let [finished] = engine.complete_step()[..] else { panic!() };
    assert_eq!((finished.id, finished.cached_tokens, finished.preemptions), (7, 0, 0));
    assert!(close(finished.first_token, 6.1) && close(finished.end, 8.3), "{finished:?}");
    assert_eq!((engine.next_step_end(), engine.cache().free_blocks()), (None, 10));
}

#[test]
fn one_token_of_output_needs_no_decode() {
    let mut engine = engine(10, 4, 100);
    engine.submit(0.0, 1, tokens(1, 4), tokens(2, 1)).unwrap();
    let finished = finish_all(&mut engine);
    assert!(close(finished[0].end, 1.04) && close(finished[0].first_token, 1.04));
}

#[test]
fn a_long_prefill_takes_several_steps_and_decodes_come_first() {
    let mut engine = engine(40, 4, 16);
    engine.submit(0.0, 1, tokens(1, 4), tokens(2, 5)).unwrap();
    engine.complete_step();
    engine.submit(1.04, 2, tokens(3, 40), tokens(4, 1)).unwrap();
    let mut ends = Vec::new();
    let mut finished = Vec::new();
    while let Some(end) = engine.next_step_end() {
        ends.push(end);
        finished.extend(engine.complete_step());
    }
    // The decode takes 1 of 16 tokens, so the chunks have 15, 15 and 10 tokens. The last step is a decode.
    let steps = [1.0 + 0.1 + 0.15, 1.0 + 0.1 + 0.15, 1.0 + 0.1 + 0.10, 1.1];
    let mut time = 1.04;
    for (end, step) in ends.iter().zip(steps) {
        time += step;
        assert!(close(*end, time), "{ends:?}");
    }
    assert_eq!(ends.len(), steps.len());
    assert_eq!(finished.iter().map(|finished| finished.id).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn requests_wait_in_their_order_for_a_place() {
    let mut engine = engine(40, 2, 100);
    for id in 0..5 {
        engine.submit(0.0, id, tokens(id as u32, 4), tokens(100, 2)).unwrap();
    }
    engine.next_step_end();
    assert_eq!((engine.running(), engine.waiting()), (2, 3));
    let order: Vec<u64> = finish_all(&mut engine).iter().map(|finished| finished.id).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn requests_wait_for_blocks_of_their_whole_prompt() {
    let mut engine = engine(8, 4, 6);
    engine.submit(0.0, 1, tokens(1, 14), tokens(2, 2)).unwrap();
    engine.submit(0.0, 2, tokens(3, 20), tokens(4, 1)).unwrap();
    engine.submit(0.0, 3, tokens(5, 1), tokens(6, 1)).unwrap();
    for _ in 0..2 {
        engine.complete_step();
    }
    // The third step computes the last 2 of 14 tokens. It has room for 4 more, but the second prompt needs 5 of 4 free
    // blocks. The third request waits behind the second, though it fits.
    engine.next_step_end();
    assert_eq!((engine.running(), engine.waiting(), engine.cache().free_blocks()), (1, 2, 4));
    let order: Vec<u64> = finish_all(&mut engine).iter().map(|finished| finished.id).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[test]
fn the_next_turn_hits_the_blocks_of_the_previous_one() {
    let mut engine = engine(40, 4, 100);
    engine.submit(0.0, 1, tokens(1, 10), tokens(2, 7)).unwrap();
    let end = finish_all(&mut engine)[0].end;
    // The last sampled token is never computed: 16 of 17 tokens are cached.
    let next = tokens(1, 10).chain(tokens(2, 7)).chain(tokens(3, 5));
    engine.submit(end, 2, next, tokens(4, 1)).unwrap();
    let [finished] = finish_all(&mut engine)[..] else { panic!() };
    assert_eq!(finished.cached_tokens, 16);
    assert!(close(finished.end, end + 1.0 + 6.0 * 0.01));
    let counts = engine.cache().counts();
    assert_eq!((counts.queries, counts.hits, counts.preemptions), (10 + 22, 16, 0));
}

#[test]
fn equal_prompts_of_one_step_share_their_blocks() {
    let mut engine = engine(40, 4, 100);
    for id in 0..3 {
        engine.submit(0.0, id, tokens(1, 9), tokens(10 + id as u32, 1)).unwrap();
    }
    // 9 tokens, and twice the last token after 8 cached ones.
    assert!(close(engine.next_step_end().unwrap(), 1.0 + 11.0 * 0.01));
    assert_eq!(engine.cache().free_blocks(), 40 - 2 - 3);
}

#[test]
fn the_request_admitted_last_is_preempted_and_prefills_again() {
    // Both start with one block of three. The second to need another block loses.
    let mut engine = engine(3, 4, 100);
    engine.submit(0.0, 1, tokens(1, 4), tokens(2, 5)).unwrap();
    engine.submit(0.0, 2, tokens(3, 4), tokens(4, 5)).unwrap();
    engine.submit(0.0, 3, tokens(5, 4), tokens(6, 1)).unwrap();
    let finished = finish_all(&mut engine);
    assert_eq!(finished.iter().map(|finished| finished.id).collect::<Vec<_>>(), [3, 1, 2]);
    let preemptions: Vec<u32> = finished.iter().map(|finished| finished.preemptions).collect();
    assert_eq!(preemptions, [0, 0, 1]);
    let counts = engine.cache().counts();
    assert_eq!((counts.queries, counts.hits, counts.preemptions), (12, 0, 1));
    assert_eq!(engine.cache().free_blocks(), 3);
}

#[test]
fn a_preempted_request_precedes_waiting_ones_and_keeps_its_tokens() {
    let mut engine = engine(4, 2, 100);
    engine.submit(0.0, 1, tokens(1, 4), tokens(2, 9)).unwrap();
    engine.submit(0.0, 2, tokens(3, 4), tokens(4, 9)).unwrap();
    engine.submit(0.0, 3, tokens(5, 4), tokens(6, 1)).unwrap();
    let finished = finish_all(&mut engine);
    assert_eq!(finished.iter().map(|finished| finished.id).collect::<Vec<_>>(), [1, 3, 2]);
    assert_eq!(finished[2].preemptions, 1);
    // Its first token is from before the preemption.
    assert!(close(finished[2].first_token, finished[0].first_token));
}

#[test]
fn an_arrival_ends_a_jump() {
    let mut engine = engine(100, 4, 100);
    engine.submit(0.0, 1, tokens(1, 4), tokens(2, 101)).unwrap();
    engine.complete_step();
    assert!(close(engine.next_step_end().unwrap(), 1.04 + 100.0 * 1.1));
    // The third decode is in progress.
    engine.submit(1.04 + 2.5 * 1.1, 2, tokens(3, 4), tokens(4, 1)).unwrap();
    assert!(close(engine.next_step_end().unwrap(), 1.04 + 3.0 * 1.1));
    assert!(engine.complete_step().is_empty());
    assert!(close(engine.next_step_end().unwrap(), 1.04 + 3.0 * 1.1 + 1.0 + 0.1 + 0.04));
    assert_eq!(engine.complete_step()[0].id, 2);
    let [last] = finish_all(&mut engine)[..] else { panic!() };
    assert!(close(last.end, 1.04 + 100.0 * 1.1 + 0.04), "{last:?}");
}

#[test]
fn advancing_shows_the_cache_within_a_jump() {
    let mut engine = engine(10, 4, 100);
    engine.submit(0.0, 1, tokens(1, 4), tokens(2, 20)).unwrap();
    engine.complete_step();
    let end = engine.next_step_end().unwrap();
    assert_eq!(engine.cache().free_blocks(), 8);
    engine.advance(1.04 + 4.01 * 1.1);
    assert_eq!(engine.cache().free_blocks(), 7, "the fifth decode begins a new block");
    engine.advance(0.0);
    assert!(close(engine.next_step_end().unwrap(), end));
    assert_eq!(engine.complete_step().len(), 1);
}

#[test]
fn impossible_requests_are_refused() {
    let mut engine = engine(2, 4, 100);
    assert_eq!(engine.submit(0.0, 1, [], [1]), Err(SubmitError::Empty { id: 1 }));
    assert_eq!(engine.submit(0.0, 2, [1], []), Err(SubmitError::Empty { id: 2 }));
    let error = engine.submit(0.0, 3, tokens(1, 8), [1]).unwrap_err();
    assert_eq!(error, SubmitError::TooLong { id: 3, tokens: 9, capacity: 8 });
    assert_eq!(engine.next_step_end(), None);
    engine.submit(0.0, 4, tokens(1, 7), [1]).unwrap();
    assert_eq!(finish_all(&mut engine).len(), 1);
}

/// An arrival: the seconds since the previous one, the prompt and the output.
type Arrival = (f64, Vec<u32>, Vec<u32>);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    // Few different tokens, so that blocks are often equal.
    let tokens = |longest| prop::collection::vec(0..2_u32, 1..longest);
    prop::collection::vec((0.0..20.0, tokens(24), tokens(24)), 1..20)
}

/// Runs the arrivals. Without `jumps`, every step is completed alone.
fn run(mut engine: Engine, arrivals: &[Arrival], jumps: bool) -> (Vec<Finished>, Engine) {
    let mut finished = Vec::new();
    let mut arrivals = arrivals.iter().zip(0..);
    let mut now = 0.0;
    let mut next = arrivals.next();
    loop {
        let end = engine.next_step_end();
        let single = engine.step.as_mut().filter(|_| !jumps).map(|step| {
            step.count = 1;
            step.end()
        });
        let end = single.or(end);
        match next {
            Some((arrival, id)) if end.is_none_or(|end| now + arrival.0 < end) => {
                now += arrival.0;
                let (prompt, output) = (arrival.1.iter().copied(), arrival.2.iter().copied());
                engine.submit(now, id, prompt, output).unwrap();
                next = arrivals.next();
            }
            _ if end.is_some() => finished.extend(engine.complete_step()),
            _ => return (finished, engine),
        }
    }
}

proptest! {
    #[test]
    fn jumps_equal_single_steps(
        arrivals in arrivals(), usable in 12..30_u32, seqs in 1..6_usize, batched in 1..40_usize,
    ) {
        let (jumped, mut one) = run(engine(usable, seqs, batched), &arrivals, true);
        let (stepped, mut other) = run(engine(usable, seqs, batched), &arrivals, false);
        prop_assert_eq!(jumped.len(), arrivals.len());
        for (jumped, stepped) in jumped.iter().zip(&stepped) {
            prop_assert!(close(jumped.end, stepped.end) && close(jumped.first_token, stepped.first_token));
            let exact = |finished: &Finished| Finished { first_token: 0.0, end: 0.0, ..*finished };
            prop_assert_eq!(exact(jumped), exact(stepped));
        }
        prop_assert_eq!(one.cache().counts(), other.cache().counts());
        for engine in [&mut one, &mut other] {
            prop_assert_eq!(engine.cache().free_blocks(), usable as usize);
            prop_assert_eq!(engine.next_step_end(), None);
        }
    }
}
