//! The engine makes the schedules that vLLM's own scheduler made for random requests.

use std::num::NonZeroU32;

use serde_json::{Value, json};

use super::*;

fn digits(text: &Value) -> impl Iterator<Item = u32> {
    text.as_str().unwrap().chars().map(|digit| digit.to_digit(10).unwrap())
}

/// Returns an engine of a case in which every step takes a second.
fn engine_of(case: &Value) -> Engine {
    let number = |name: &str| case[name].as_u64().unwrap();
    let settings = EngineSettings {
        max_num_seqs: NonZeroUsize::new(number("max_num_seqs") as usize).unwrap(),
        max_num_batched_tokens: NonZeroUsize::new(number("max_num_batched_tokens") as usize).unwrap(),
        price: StepPrice { step: 1.0, ..StepPrice::default() },
    };
    let block_size = NonZeroU32::new(number("block_size") as u32).unwrap();
    Engine::new(settings, KvCache::new(number("num_blocks") as u32, block_size))
}

/// Runs a case, and returns its finished requests in the recorded form.
fn schedule(case: &Value, engine: &mut Engine) -> Vec<Value> {
    let mut finished = Vec::new();
    let requests: Vec<(u64, &Value)> = (0..).zip(case["requests"].as_array().unwrap()).collect();
    for arriving in requests.chunk_by(|one, next| one.1["arrival"] == next.1["arrival"]) {
        let arrival = arriving[0].1["arrival"].as_f64().unwrap();
        while engine.next_step_end().is_some_and(|end| end < arrival) {
            finished.extend(engine.complete_step());
        }
        // A request that arrives within a step can be in the next one.
        let now = if engine.next_step_end().is_some() { arrival - 0.5 } else { arrival };
        for (id, request) in arriving {
            engine.submit(now, *id, digits(&request["prompt"]), digits(&request["output"])).unwrap();
        }
    }
    finished.extend(finish_all(engine));
    let recorded = |finished: &Finished| {
        json!([
            finished.id,
            finished.end as u64,
            finished.first_token as u64,
            finished.cached_tokens,
            finished.preemptions
        ])
    };
    finished.iter().map(recorded).collect()
}

#[test]
fn schedules_equal_those_of_vllm() {
    let text = include_str!("../../../../fixtures/scheduler/schedules.json");
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(cases.iter().any(|case| case["preemptions"] != 0) && cases.iter().any(|case| case["hits"] != 0));
    for (index, case) in cases.iter().enumerate() {
        let mut engine = engine_of(case);
        assert_eq!(json!(schedule(case, &mut engine)), case["finished"], "case {index}");
        let counts = engine.cache().counts();
        let recorded = ["queries", "hits", "preemptions"].map(|name| case[name].as_u64().unwrap());
        assert_eq!([counts.queries, counts.hits, counts.preemptions], recorded, "case {index}");
        assert_eq!(
            engine.cache().capacity(),
            engine.cache().free_blocks() * case["block_size"].as_u64().unwrap() as usize
        );
    }
}
