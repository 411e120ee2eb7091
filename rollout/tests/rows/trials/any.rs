//! Valid trials of any shape.

use jiff::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use rolltap_rollout::call::{CallStatus, Flaw, Sampling};

use super::{Answer, Facts, Trial, VOCAB_SIZE, build};

pub(crate) fn trials() -> impl Strategy<Value = Trial> {
    (facts(), vec(answers(), 1..9)).prop_map(|(facts, mut answers)| {
        for index in 1..answers.len() {
            if answers[index].is_other_choice {
                let (first, other) = answers.split_at_mut(index);
                let (first, other) = (&first[index - 1], &mut other[0]);
                other.version = first.version;
                other.status = first.status;
                other.flaws = first.flaws.clone();
            }
        }
        build(&facts, &answers)
    })
}

fn facts() -> impl Strategy<Value = Facts> {
    let place = (option::of((text(), 1..i32::MAX / 2)), 0..i32::MAX / 2, 0..=i32::MAX, any::<bool>());
    let texts = (text(), [option::of(text()), option::of(text()), option::of(text()), option::of(text())]);
    let maps = (btree_map(text(), text(), 0..4), btree_map(text(), finite(), 0..4));
    let numbers = (option::of(finite()), option::of(finite()));
    let suspicious = option::of(vec("[a-z_]{1,12}", 0..3));
    let rest = (numbers, any::<bool>(), suspicious, any::<bool>(), "[a-z0-9][a-zA-Z0-9._-]{0,20}");
    (place, texts, maps, rest).prop_map(|(place, (task_id, texts), (labels, rewards), rest)| {
        let (group, sample_index, attempt, superseded) = place;
        let ((reward, advantage), reward_valid, suspicious, knows_vocab_size, trial_id) = rest;
        Facts {
            trial_id,
            group,
            sample_index,
            attempt,
            superseded,
            task_id,
            texts,
            labels,
            reward,
            advantage,
            rewards,
            reward_valid,
            suspicious,
            knows_vocab_size,
        }
    })
}

fn answers() -> impl Strategy<Value = Answer> {
    let place = (prop::bool::weighted(0.2), option::weighted(0.8, 0_usize..9), vec(0..VOCAB_SIZE, 1..6));
    let ending = (finish_reasons(), statuses(), flaws(), prop::bool::weighted(0.1));
    let sampled = vec((0..VOCAB_SIZE, option::weighted(0.9, logprobs())), 1..6);
    let facts = (0..=i32::MAX, times(), sampling(), option::of(messages()), text());
    (place, sampled, ending, facts).prop_map(|(place, sampled, ending, facts)| {
        let (is_other_choice, parent, tail) = place;
        let (finish_reason, status, flaws, is_ambiguous) = ending;
        let (version, ended_at, sampling, messages, model) = facts;
        Answer {
            is_other_choice,
            parent,
            tail,
            sampled,
            finish_reason,
            status,
            flaws,
            is_ambiguous,
            version,
            ended_at,
            sampling,
            messages,
            model,
        }
    })
}

fn statuses() -> impl Strategy<Value = CallStatus> {
    prop_oneof![4 => Just(CallStatus::Complete), 1 => Just(CallStatus::Failed), 1 => Just(CallStatus::Cancelled)]
}

fn flaws() -> impl Strategy<Value = Vec<Flaw>> {
    prop_oneof![5 => Just(Vec::new()), 1 => Just(vec![Flaw::MissingChoice])]
}

fn finish_reasons() -> impl Strategy<Value = Option<String>> {
    let known = prop::sample::select(vec!["stop", "length", "abort", "tool_calls"]);
    prop_oneof![3 => known.prop_map(|reason| Some(reason.to_owned())), 1 => Just(None), 1 => text().prop_map(Some)]
}

/// Generates every finite logprob, with frequent edge cases.
pub(crate) fn logprobs() -> impl Strategy<Value = f32> {
    use prop::num::f32::{NEGATIVE, NORMAL, SUBNORMAL, ZERO};
    let awkward = vec![-0.0, 0.0, f32::MIN, -f32::MIN_POSITIVE, -1e-45, -9999.0, -1e-7];
    prop_oneof![3 => NEGATIVE | NORMAL | SUBNORMAL | ZERO, 1 => prop::sample::select(awkward)]
}

fn finite() -> impl Strategy<Value = f64> {
    use prop::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    prop_oneof![POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO, Just(-0.0), Just(f64::MAX), Just(5e-324)]
}

/// Generates every time that Parquet holds, to the nanosecond.
fn times() -> impl Strategy<Value = Timestamp> {
    any::<i64>().prop_map(|nanoseconds| Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap())
}

/// Generates any Unicode text, control characters included.
fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..8).prop_map(String::from_iter)
}

fn sampling() -> impl Strategy<Value = Sampling> {
    let params = btree_map(text(), any::<i64>(), 0..3);
    (option::of(finite()), option::of(finite()), option::of(any::<i64>()), any::<bool>(), params).prop_map(
        |(temperature, top_p, top_k, constrained, params)| Sampling {
            temperature,
            top_p,
            top_k,
            constrained,
            params: params.into_iter().map(|(key, value)| (key, value.into())).collect(),
        },
    )
}

fn messages() -> impl Strategy<Value = String> {
    vec(text(), 0..3).prop_map(|contents| serde_json::to_string(&contents).unwrap())
}
