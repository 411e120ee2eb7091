use proptest::prelude::*;

use super::super::advantage::Advantage;
use super::super::projection::RowFacts;
use super::super::rules::{Comparison, Failed, Rules};
use super::super::survey::Survey;
use super::*;
use crate::export::format::Format;
use crate::export::testing::fixture::{forked, straight};

fn rules() -> Rules {
    Rules {
        on_fork: OnFork::All,
        failed: Failed::Mask,
        advantage: Advantage::Grpo,
        comparison: Comparison::Never,
        ..Format::Jsonl.rules()
    }
}

/// Exports the fixtures' rows after this change.
fn exported(
    rules: Rules,
    change: impl Fn(&mut RolloutRow),
) -> Result<(Vec<Option<Trial>>, Tally), SelectionError> {
    let trials = [straight().rows, forked().rows].map(|mut rows| {
        rows.iter_mut().for_each(&change);
        rows
    });
    let mut survey = Survey::new(rules);
    trials.iter().for_each(|rows| survey.trial(RowFacts::from(&rows[0])).unwrap());
    let plan = survey.plan().unwrap();
    let mut tally = Tally::default();
    let taken = trials.into_iter().map(|rows| plan.take(rows, &mut tally)).collect::<Result<_, _>>()?;
    Ok((taken, tally))
}

fn masks(trial: &Trial) -> Vec<(Vec<u8>, Vec<u8>)> {
    trial.rows.iter().map(|row| (row.trainable_mask.clone(), row.loss_mask.clone())).collect()
}

fn fork(on_fork: OnFork) -> Trial {
    exported(Rules { on_fork, ..rules() }, |_| {}).unwrap().0.remove(1).unwrap()
}

/// The advantage belongs to the trial, for any number of branches: the mean is of 1 and 0, not of 1, 0 and 0.
#[test]
fn a_fork_does_not_weigh_twice() {
    let (trials, tally) = exported(rules(), |_| {}).unwrap();
    let advantage = 0.5 / (0.5_f64.sqrt() + 1e-6);
    let of = |trial: &Option<Trial>| trial.as_ref().map(|trial| trial.advantage);
    assert_eq!(trials.iter().map(of).collect::<Vec<_>>(), [Some(Some(advantage)), Some(Some(-advantage))]);
    let forked = trials[1].as_ref().unwrap();
    assert!(forked.rows.iter().all(|row| row.advantage == Some(-advantage)));
    assert_eq!(
        masks(forked),
        crate::export::testing::fixture::forked().rows.iter().map(both).collect::<Vec<_>>()
    );
    let sampled = tally.sampled.clone();
    let calls = Tally { calls: 6, calls_without_messages: 6, ..Tally::default() };
    let expected = Tally { trials: 2, branches: 3, tokens: 17, trained: 7, sampled, ..calls };
    assert_eq!(tally, expected);
}

fn both(row: &RolloutRow) -> (Vec<u8>, Vec<u8>) {
    (row.trainable_mask.clone(), row.loss_mask.clone())
}

/// The omitted branch owns the shared token, which would not be trained anywhere.
#[test]
fn the_longest_branch_trains_what_it_shares() {
    let trial = fork(OnFork::Longest);
    assert_eq!((trial.rows.len(), trial.left_out, trial.rows[0].branch_index), (1, 1, 1));
    assert_eq!(trial.rows[0].loss_mask, [0, 0, 1, 0, 1, 1]);
    assert_eq!(trial.rows[0].trainable_mask, [0, 0, 1, 0, 1, 1]);
}

#[test]
fn of_equally_long_branches_the_first_is_taken() {
    let shorten = |row: &mut RolloutRow| {
        if row.branch_index == 1 {
            (row.trainable_mask[5], row.loss_mask[5]) = (0, 0);
        }
    };
    let rules = Rules { on_fork: OnFork::Longest, ..rules() };
    let (trials, _) = exported(rules, shorten).unwrap();
    assert_eq!(trials[1].as_ref().unwrap().rows[0].branch_index, 0);
}

/// A tool that asserts on forks would fail in the same way, but before anything is written.
#[test]
fn forks_can_be_refused() {
    let refusal = exported(Rules { on_fork: OnFork::Error, ..rules() }, |_| {}).unwrap_err();
    assert!(matches!(&refusal, SelectionError::Forked { branches: 2, .. }), "{refusal}");
    assert!(refusal.to_string().starts_with("trial forked has 2 branches"), "{refusal}");
}

#[test]
fn a_failed_trial_is_whole_and_trains_nothing() {
    let fail = |row: &mut RolloutRow| {
        if row.trial_id == "forked" {
            (row.reward, row.reward_valid) = (Some(0.25), false);
        }
    };
    let (trials, tally) = exported(rules(), fail).unwrap();
    let failed = trials[1].as_ref().unwrap();
    assert_eq!((failed.reward, failed.advantage, failed.rows.len()), (None, Some(0.0), 2));
    assert!(
        masks(failed).iter().all(|(trainable, loss)| trainable.iter().chain(loss).all(|&mask| mask == 0))
    );
    assert_eq!(failed.rows[0].reward, Some(0.25), "the verifier's reward stays on record");
    assert_eq!(failed.group.map(|group| group.trials), Some(2));
    assert_eq!(tally.trained, 3);
}

#[test]
fn a_failed_trial_that_counts_as_zero_is_trained() {
    let fail = |row: &mut RolloutRow| {
        if row.trial_id == "forked" {
            (row.reward, row.reward_valid) = (None, false);
        }
    };
    let (trials, _) = exported(Rules { failed: Failed::Zero, ..rules() }, fail).unwrap();
    let failed = trials[1].as_ref().unwrap();
    assert_eq!(
        (failed.reward, failed.rows[0].reward, failed.rows[0].reward_valid),
        (Some(0.0), Some(0.0), true)
    );
    assert_eq!(masks(failed), forked().rows.iter().map(both).collect::<Vec<_>>());
}

/// Marks the first call, which both branches share, as constrained.
fn constrain(row: &mut RolloutRow) {
    row.calls[0].constrained = row.trial_id == "forked";
}

#[test]
fn constrained_calls_are_masked_unless_asked_for() {
    let (trials, tally) = exported(rules(), constrain).unwrap();
    let expected =
        [(vec![0, 0, 0, 0, 1], vec![0, 0, 0, 0, 1]), (vec![0, 0, 0, 0, 1, 1], vec![0, 0, 0, 0, 1, 1])];
    assert_eq!(masks(trials[1].as_ref().unwrap()), expected);
    assert_eq!((tally.constrained, tally.trained), (1, 6), "a shared token counts once");
    let (trials, tally) = exported(Rules { train_constrained: true, ..rules() }, constrain).unwrap();
    assert_eq!(masks(trials[1].as_ref().unwrap())[0].1, [0, 0, 1, 0, 1]);
    assert_eq!(tally.constrained, 0);
}

#[test]
fn a_shared_token_is_given_back_only_where_it_can_be_trained() {
    let (trials, _) = exported(Rules { on_fork: OnFork::Longest, ..rules() }, constrain).unwrap();
    assert_eq!(trials[1].as_ref().unwrap().rows[0].loss_mask, [0, 0, 0, 0, 1, 1]);
}

#[test]
fn a_row_that_breaks_an_invariant_is_refused_with_its_place() {
    type Break = (fn(&mut RolloutRow), &'static str);
    let breaks: [Break; 5] = [
        (|row| row.logprobs[4] = f32::NAN, "logprobs[4] is NaN"),
        (|row| row.logprobs[4] = 0.5, "logprobs[4] is 0.5"),
        (|row| row.logprobs.truncate(4), "logprobs has 4 values, token_ids has 5"),
        (|row| row.token_ids[4] = 1000, "token_ids[4] is 1000"),
        (empty, "no token is sampled"),
    ];
    for (change, said) in breaks {
        let change = |row: &mut RolloutRow| {
            if row.trial_id == "forked" && row.branch_index == 0 {
                change(row);
            }
        };
        let refusal = exported(rules(), change).unwrap_err().to_string();
        assert!(refusal.contains("trial forked, branch 0: ") && refusal.contains(said), "{refusal}");
    }
}

fn empty(row: &mut RolloutRow) {
    for mask in [&mut row.sampled_mask, &mut row.trainable_mask, &mut row.loss_mask] {
        mask.fill(0);
    }
    row.logprobs.fill(0.0);
    row.token_version.fill(-1);
    row.calls.clear();
}

#[test]
fn a_branch_that_is_missing_is_reported() {
    let mut rows = forked().rows;
    let mut survey = Survey::new(Rules { open_groups: true, ..rules() });
    survey.trial(RowFacts::from(&rows[0])).unwrap();
    rows.pop();
    let refusal = survey.plan().unwrap().take(rows, &mut Tally::default()).unwrap_err();
    assert!(refusal.to_string().contains("num_branches is 2, and the trial has 1 rows"), "{refusal}");
}

#[test]
fn a_trial_that_is_left_out_is_not_taken() {
    let (trials, tally) = exported(rules(), |row| row.group_size = Some(3)).unwrap();
    assert_eq!((trials, tally), (vec![None, None], Tally::default()));
}

proptest! {
    /// For any selection, no trainable token is trained twice, and each trainable token of the exported branches is
    /// trained.
    #[test]
    fn each_token_is_trained_in_one_branch(
        on_fork in prop::sample::select(vec![OnFork::All, OnFork::Longest]),
        constrained in any::<u8>(),
    ) {
        let change = |row: &mut RolloutRow| {
            for (at, call) in row.calls.iter_mut().enumerate() {
                // A call that branches share counts once.
                let bit = at + if at == 0 { 0 } else { row.branch_index as usize };
                call.constrained = constrained & (1 << bit) != 0;
            }
        };
        let (trials, tally) = exported(Rules { on_fork, ..rules() }, change).unwrap();
        let mut trained = 0;
        for trial in trials.iter().flatten() {
            let mut seen = std::collections::HashSet::new();
            for row in &trial.rows {
                for (at, (&trainable, &loss)) in row.trainable_mask.iter().zip(&row.loss_mask).enumerate() {
                    prop_assert!(loss <= trainable);
                    let is_new = trainable == 1 && seen.insert(row.token_ids[..=at].to_vec());
                    prop_assert_eq!(loss == 1, is_new, "{}", at);
                    trained += u64::from(loss);
                }
            }
        }
        prop_assert_eq!(tally.trained, trained);
    }
}

/// A later export of the exported rows needs no second decision.
#[test]
fn a_failed_trial_that_counts_as_0_does_so_in_what_is_made_of_its_rows() {
    let fail = |row: &mut RolloutRow| {
        if row.trial_id == "straight" {
            (row.reward, row.reward_valid) = (None, false);
            row.failure_cause = Some("AgentTimeoutError".to_owned());
        }
    };
    let (trials, _) = exported(Rules { failed: Failed::Zero, ..rules() }, fail).unwrap();
    let row = &trials[0].as_ref().unwrap().rows[0];
    assert_eq!((row.reward, row.reward_valid), (Some(0.0), true));
    assert_eq!(row.failure_cause.as_deref(), Some("AgentTimeoutError"), "why stays");
    let (masked, _) = exported(rules(), fail).unwrap();
    assert!(!masked[0].as_ref().unwrap().rows[0].reward_valid);

    let mut survey = Survey::new(rules());
    trials.iter().flatten().for_each(|trial| survey.trial(RowFacts::from(&trial.rows[0])).unwrap());
    let plan = survey.plan().unwrap();
    assert_eq!((plan.counts().failed, plan.trials()), (0, 2));
}
