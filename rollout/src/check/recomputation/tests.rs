use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::forest::tests::call;
use crate::ids::{TaskId, TrialId};
use crate::rollout::{Reward, TrialFacts, rows};
use crate::row::RolloutRow;
use crate::training::TrainingPolicy;

const BOUNDS: Bounds = Bounds { token: 0.5, mean: 0.1 };

/// Returns the row 1 2 [3] 4 [5 6], with sampled ids in brackets. The logprob of a sampled id is its negative.
pub(super) fn sound_row() -> RolloutRow {
    rows_of(&[(&[1, 2], &[3]), (&[1, 2, 3, 4], &[5, 6])]).remove(0)
}

fn rows_of(calls: &[(&[u32], &[u32])]) -> Vec<RolloutRow> {
    let facts = TrialFacts {
        trial_id: TrialId::new("t").unwrap(),
        task_id: TaskId::new("org/task").unwrap(),
        group_id: None,
        group_size: None,
        sample_index: 0,
        attempt: 0,
        agent: None,
        environment: None,
        model: None,
        logprobs_mode: "raw_logprobs".to_owned(),
        tokenizer_hash: None,
        vocab_size: Some(1000),
        training: TrainingPolicy::default(),
    };
    let calls: Vec<_> = (0..).zip(calls).map(|(n, (prompt, answer))| call(n, prompt, &[answer])).collect();
    rows(&facts, &Reward::default(), &calls)
}

fn selected(row: &RolloutRow) -> (Comparable, LeftOut) {
    let mut left_out = LeftOut::new();
    (Comparable::of(row, &mut left_out), left_out)
}

fn indices(row: &Comparable) -> Vec<usize> {
    row.tokens.iter().map(|token| token.index).collect()
}

/// Returns the only reason why tokens of the changed row are left out, and their number.
fn left_out(change: impl Fn(&mut RolloutRow)) -> (Reason, u64) {
    let mut row = sound_row();
    change(&mut row);
    let (_, left_out) = selected(&row);
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    left_out.into_iter().next().unwrap()
}

fn processed(row: &mut RolloutRow) {
    row.logprobs_mode = "processed_logprobs".to_owned();
    for span in &mut row.calls {
        (span.temperature, span.top_p, span.top_k) = (Some(1.0), Some(1.0), Some(0));
    }
}

#[test]
fn trained_tokens_are_compared_and_the_prompt_ends_with_the_last() {
    let (row, left_out) = selected(&sound_row());
    assert_eq!((indices(&row), row.token_ids.len(), left_out), (vec![2, 4, 5], 6, LeftOut::new()));
    assert_eq!((row.model.as_str(), row.tokens[0].captured), ("m", -3.0));
    let mut shorter = sound_row();
    shorter.loss_mask[5] = 0;
    assert_eq!(selected(&shorter).0.token_ids, [1, 2, 3, 4, 5]);
}

#[test]
fn a_token_that_branches_share_is_compared_once() {
    let rows = rows_of(&[(&[1], &[2]), (&[1, 2, 3], &[4]), (&[1, 2, 7], &[8])]);
    let indices: Vec<_> = rows.iter().map(|row| indices(&selected(row).0)).collect();
    assert_eq!(indices, [vec![1, 3], vec![3]]);
}

#[test]
fn tokens_whose_logprob_no_server_recomputes_are_counted_by_reason() {
    assert_eq!(left_out(|row| row.has_media = true), (Reason::Media, 3));
    assert_eq!(left_out(|row| row.calls[1].constrained = true), (Reason::Constrained, 2));
    assert_eq!(left_out(|row| row.logprobs_mode = "unknown".to_owned()), (Reason::UnknownMode, 3));
    assert_eq!(left_out(|row| row.logprobs.truncate(5)), (Reason::Misaligned, 1));
    assert_eq!(left_out(|row| row.calls.truncate(1)), (Reason::Misaligned, 2));
    let first = |row: &mut RolloutRow| {
        (row.loss_mask[0], row.calls[0].start) = (1, 0);
    };
    assert_eq!(left_out(first), (Reason::FirstToken, 1));
}

#[test]
fn processed_logprobs_are_compared_only_where_sampling_changed_nothing() {
    let with = |change: fn(&mut RolloutRow)| {
        left_out(move |row| {
            processed(row);
            change(row);
        })
    };
    assert_eq!(with(|row| row.calls[0].temperature = Some(0.7)), (Reason::Processed, 1));
    assert_eq!(with(|row| row.calls[1].top_k = Some(20)), (Reason::Processed, 2));
    assert_eq!(with(|row| row.calls[1].sampling = r#"{"min_p": 0.1}"#.to_owned()), (Reason::Processed, 2));
    assert_eq!(with(|row| row.calls[1].top_p = None), (Reason::UnknownSampling, 2));
    let mut plain = sound_row();
    processed(&mut plain);
    assert_eq!(selected(&plain).1, LeftOut::new());
    // Raw logprobs are those of the undivided logits at any temperature.
    let mut raw = sound_row();
    raw.calls[0].temperature = Some(0.7);
    assert_eq!(selected(&raw).1, LeftOut::new());
}

#[test]
fn a_chosen_policy_and_the_context_limit_the_compared_tokens() {
    let mut row = sound_row();
    row.token_version[4..].fill(1);
    row.version_labels = BTreeMap::from([("1".to_owned(), "17".to_owned())]);
    let (row, _) = selected(&row);
    let (mut of_one, mut left_out) = (row.clone(), LeftOut::new());
    of_one.retain_policy(&Policy::Numbered(17), &mut left_out);
    assert_eq!((indices(&of_one), &left_out), (vec![4, 5], &LeftOut::from([(Reason::OtherPolicy, 1)])));
    of_one.retain_prompt(5, &mut left_out);
    assert_eq!((indices(&of_one), of_one.token_ids.len()), (vec![4], 5));
    assert_eq!(left_out, LeftOut::from([(Reason::OtherPolicy, 1), (Reason::Context, 1)]));
    of_one.retain_prompt(4, &mut left_out);
    assert!(of_one.tokens.is_empty() && of_one.token_ids.is_empty());
}

#[test]
fn differences_are_summed_per_policy() {
    let mut row = sound_row();
    row.token_version[4..].fill(1);
    let (row, _) = selected(&row);
    let mut comparison = Comparison::new(BOUNDS);
    // Captured are −3, −5 and −6 at 2, 4 and 5. The logprobs begin with that of token 1.
    assert_eq!(comparison.add(&row, &[-9.0, -3.0, -9.0, -5.1, -6.0]), None);
    let [first, second] = comparison.policies.values().collect::<Vec<_>>()[..] else {
        panic!("{comparison:?}")
    };
    assert_eq!((first.rows, first.tokens, first.largest, first.kl_k1()), (1, 1, 0.0, 0.0));
    assert_eq!((second.rows, second.tokens, comparison.all.rows, comparison.all.tokens), (1, 2, 1, 3));
    let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value} {expected}");
    near(second.largest, 0.1);
    near(second.mean(), 0.05);
    near(second.kl_k1(), 0.05);
    near(second.kl_k3(), ((-0.1_f64).exp() - 1.0 + 0.1) / 2.0);
}

#[test]
fn a_row_beyond_a_bound_is_named_with_its_worst_token() {
    let (row, _) = selected(&sound_row());
    let mut comparison = Comparison::new(BOUNDS);
    let beyond = comparison.add(&row, &[0.0, -3.0, 0.0, -5.75, -6.0]).unwrap();
    assert_eq!((beyond.worst.index, beyond.worst.recomputed, comparison.beyond), (4, -5.75, 1));
    let expected = "trial t, branch 0: recomputed: mean difference 2.50e-1 over 3 tokens, largest 7.50e-1 at \
                    token_ids[4]: captured -5, recomputed -5.75";
    assert_eq!(beyond.to_string(), expected);
    // Each token is within its bound, and their mean is not.
    assert!(comparison.add(&row, &[0.0, -3.2, 0.0, -5.2, -6.2]).is_some());
    // A logprob that is missing or no number is never equal.
    for odd in [&[0.0, -3.0][..], &[0.0, f64::NAN, 0.0, -5.0, -6.0]] {
        assert!(comparison.add(&row, odd).is_some(), "{odd:?}");
    }
    assert_eq!(comparison.beyond, 4);
}

proptest! {
    #[test]
    fn equal_logprobs_are_within_every_bound_and_a_changed_one_is_found(
        change in 0.01..100.0_f64, place in 0..3_usize,
    ) {
        let (row, _) = selected(&sound_row());
        let mut logprobs = [-1.0, -3.0, -1.0, -5.0, -6.0];
        let mut comparison = Comparison::new(Bounds { token: 0.005, mean: f64::INFINITY });
        prop_assert_eq!(comparison.add(&row, &logprobs), None);
        prop_assert_eq!((comparison.all.mean(), comparison.all.kl_k3()), (0.0, 0.0));
        let index = row.tokens[place].index;
        logprobs[index - 1] -= change;
        prop_assert_eq!(comparison.add(&row, &logprobs).map(|beyond| beyond.worst.index), Some(index));
    }

    #[test]
    fn the_figures_agree_with_their_definitions(logprobs in prop::array::uniform5(-30.0..0.0_f64)) {
        let (row, _) = selected(&sound_row());
        let mut comparison = Comparison::new(BOUNDS);
        comparison.add(&row, &logprobs);
        let ratios: Vec<_> =
            row.tokens.iter().map(|token| logprobs[token.index - 1] - f64::from(token.captured)).collect();
        let mean = |of: fn(f64) -> f64| ratios.iter().copied().map(of).sum::<f64>() / ratios.len() as f64;
        let figures = &comparison.all;
        prop_assert!((figures.mean() - mean(f64::abs)).abs() < 1e-9);
        prop_assert!((figures.kl_k1() + mean(|ratio| ratio)).abs() < 1e-9);
        let k3 = mean(|ratio| ratio.exp() - 1.0 - ratio);
        prop_assert!((figures.kl_k3() - k3).abs() <= 1e-9 * k3.max(1.0));
        prop_assert!(figures.kl_k3() >= 0.0);
        prop_assert_eq!(figures.largest, ratios.iter().fold(0.0, |largest: f64, ratio| largest.max(ratio.abs())));
    }

    #[test]
    fn no_row_panics(
        lengths in prop::array::uniform4(0..9_usize), start: i32, end: i32, bit: u8, version: i32,
    ) {
        let mut row = sound_row();
        row.token_ids.resize(lengths[0], 1);
        row.loss_mask.resize(lengths[1], bit);
        row.logprobs.resize(lengths[2], f32::NAN);
        row.token_version.resize(lengths[3], version);
        (row.calls[0].start, row.calls[1].end) = (start, end);
        let ones = row.loss_mask.iter().filter(|bit| **bit == 1).count() as u64;
        let (row, left_out) = selected(&row);
        // Each trained token is compared or counted.
        prop_assert_eq!(row.tokens.len() as u64 + left_out.values().sum::<u64>(), ones);
        prop_assert!(row.tokens.iter().all(|token| token.index >= 1 && token.index < row.token_ids.len()));
    }
}
