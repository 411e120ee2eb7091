//! The checks: valid trials pass, and every breach is named.

mod mutations;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;
use rolltap_rollout::check::{Breach, Captured, Checker, Invariant, Options, check_trial};
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::row::RolloutRow;
use rolltap_rollout::training::TrainingPolicy;

use self::mutations::{Mutation, mutations};
use crate::trials::any::trials;
use crate::trials::{Facts, Trial, VOCAB_SIZE, example};

fn breaches(trial: &Trial) -> Vec<Breach> {
    let captured = Captured::new(&trial.calls).training(TrainingPolicy::default());
    check_trial(&TrialId::new("trial").unwrap(), &trial.rows, Some(&captured), Options::default())
}

fn breaches_of_rows<'a>(rows: impl IntoIterator<Item = &'a RolloutRow>, options: Options) -> Vec<Breach> {
    let mut checker = Checker::new(options);
    let mut breaches: Vec<_> = rows.into_iter().flat_map(|row| checker.row(row, None)).collect();
    breaches.extend(checker.finish());
    breaches
}

#[test]
fn the_example_is_valid() {
    assert_eq!(breaches(&example()), []);
    assert_eq!(example().rows.len(), 3);
}

#[test]
fn each_broken_invariant_is_named_with_its_place_and_no_other() {
    for (number, mutation) in mutations().into_iter().enumerate() {
        let Mutation { invariant, branch, detail, along_with, mutate } = mutation;
        let mut trial = example();
        mutate(&mut trial);
        let breaches = breaches(&trial);
        let is_it = |breach: &Breach| {
            breach.invariant == invariant && breach.branch_index == branch && breach.detail.contains(detail)
        };
        assert!(breaches.iter().any(is_it), "mutation {number}, {invariant} ({detail}): {breaches:#?}");
        let named: BTreeSet<_> = breaches.iter().map(|breach| breach.invariant).collect();
        let expected: BTreeSet<_> = along_with.iter().copied().chain([invariant]).collect();
        assert_eq!(named, expected, "mutation {number}, {invariant} ({detail}): {breaches:#?}");
    }
}

#[test]
fn each_invariant_has_a_mutation_and_a_name_of_its_own() {
    let broken: BTreeSet<_> = mutations().iter().map(|mutation| mutation.invariant).collect();
    assert_eq!(broken, Invariant::ALL.iter().copied().collect());
    let names: BTreeSet<_> = Invariant::ALL.iter().map(|invariant| invariant.to_string()).collect();
    assert_eq!(names.len(), Invariant::ALL.len());
    assert!(names.iter().all(|name| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())));
}

/// Changes the value of one token, anywhere.
fn change_one_value(row: &mut RolloutRow, column: u8, place: Index) {
    let at = place.index(row.token_ids.len());
    match column {
        0 => row.token_ids[at] ^= 1,
        1 => row.sampled_mask[at] ^= 1,
        2 => row.trainable_mask[at] ^= 1,
        3 => row.loss_mask[at] ^= 1,
        4 => row.logprobs[at] -= 1.0 + row.logprobs[at].abs() / 2.0,
        _ => row.token_version[at] ^= 1,
    }
}

proptest! {
    #[test]
    fn valid_trials_pass(trial in trials()) {
        prop_assert_eq!(breaches(&trial), []);
        let options = Options { vocab_size: Some(VOCAB_SIZE), ..Options::default() };
        prop_assert_eq!(breaches_of_rows(&trial.rows, options), []);
    }

    #[test]
    fn no_changed_token_goes_unnoticed(trial in trials(), row in any::<Index>(), column in 0_u8..6, at in any::<Index>()) {
        let mut changed = trial;
        let row = row.index(changed.rows.len());
        change_one_value(&mut changed.rows[row], column, at);
        prop_assert!(!breaches(&changed).is_empty());
    }

    /// Foreign rows can hold anything.
    #[test]
    fn nonsense_is_reported_without_panic(
        trial in trials(),
        cuts in prop::collection::vec((any::<Index>(), 0_u8..6, any::<Index>()), 0..4),
        spans in prop::collection::vec((any::<Index>(), any::<Index>(), any::<i32>(), any::<i32>()), 0..4),
        branch_index: i32,
        num_branches: i32,
    ) {
        let mut trial = trial;
        for (row, column, length) in cuts {
            let row = row.index(trial.rows.len());
            let row = &mut trial.rows[row];
            let length = length.index(row.token_ids.len() + 1);
            match column {
                0 => row.token_ids.truncate(length),
                1 => row.sampled_mask.truncate(length),
                2 => row.trainable_mask.truncate(length),
                3 => row.loss_mask.truncate(length),
                4 => row.logprobs.truncate(length),
                _ => row.token_version.truncate(length),
            }
        }
        for (row, span, start, end) in spans {
            let row = row.index(trial.rows.len());
            let calls = &mut trial.rows[row].calls;
            let span = span.index(calls.len());
            (calls[span].start, calls[span].end) = (start, end);
        }
        trial.rows[0].branch_index = branch_index;
        trial.rows[0].num_branches = num_branches;
        drop(breaches(&trial));
    }
}

#[test]
fn trials_one_after_the_other_pass() {
    let other = crate::trials::build(&Facts::new("other"), &[crate::trials::Answer::new(None)]);
    let rows: Vec<_> = example().rows.into_iter().chain(other.rows).collect();
    assert_eq!(breaches_of_rows(&rows, Options::default()), []);
}

#[test]
fn the_lower_of_two_vocabularies_counts() {
    let options = Options { vocab_size: Some(24), ..Options::default() };
    let found = breaches_of_rows(&example().rows, options);
    assert!(found.iter().all(|breach| breach.invariant == Invariant::TokenIdRange), "{found:#?}");
    assert_eq!(found.len(), 5, "token 24 stands five times: {found:#?}");
}

#[test]
fn many_breaches_of_one_kind_are_counted() {
    let mut trial = example();
    let row = &mut trial.rows[0];
    row.token_ids.fill(-7);
    let found = breaches_of_rows([&*row], Options { details_per_invariant: 3, ..Options::default() });
    let of_ids: Vec<_> = found.iter().filter(|breach| breach.invariant == Invariant::TokenIdRange).collect();
    assert_eq!(of_ids.len(), 4, "{of_ids:#?}");
    assert_eq!(of_ids[3].detail, "11 more of this kind");
}

#[test]
fn captured_answers_of_a_trial_without_rows_are_missed() {
    let trial = Trial { rows: Vec::new(), ..example() };
    let found = breaches(&trial);
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(found.iter().all(|breach| breach.invariant == Invariant::CapturedPresence), "{found:#?}");
}

#[test]
fn a_breach_reads_as_one_line() {
    let mut trial = example();
    trial.rows[1].loss_mask[4] = 1;
    let lines: Vec<_> = breaches(&trial).iter().map(ToString::to_string).collect();
    let expected = "trial trial: loss_owner: token 1 of choice 0 of call call-0000 is in loss_mask of the branches [0, 1]";
    assert_eq!(lines, [expected]);
    for row in &mut trial.rows {
        row.trial_id = "line\nbreak".to_owned();
    }
    let lines: Vec<_> = breaches(&trial).iter().map(ToString::to_string).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("trial line\\nbreak: loss_owner: "), "{lines:?}");
}
