//! Tests of the groups that an export leaves out or fills, and of the statistics that a trainer computes for the others.

use proptest::prelude::*;

use super::super::projection::RowFacts;
use super::super::rules::{Comparison, Failed, ShortGroups};
use super::tests::{advantages, left_out, planned, rules, trial};
use super::*;

/// Returns a group of trials with these rewards. `None` is a failed trial.
fn group(rewards: &[Option<f64>]) -> Vec<RowFacts> {
    let size = i32::try_from(rewards.len()).ok();
    let trials = rewards
        .iter()
        .zip(0..)
        .map(|(reward, index)| RowFacts { group_size: size, ..trial(&format!("t{index}"), index, *reward) });
    trials.collect()
}

fn in_group(name: &str, trials: Vec<RowFacts>) -> Vec<RowFacts> {
    let renamed = |trial: RowFacts| RowFacts {
        trial_id: format!("{name}-{}", trial.trial_id),
        group_id: Some(name.to_owned()),
        ..trial
    };
    trials.into_iter().map(renamed).collect()
}

fn compared(comparison: Comparison) -> Rules {
    let failed = if comparison == Comparison::Named { Failed::Drop } else { Failed::Mask };
    Rules { comparison, failed, advantage: Advantage::None, ..rules() }
}

const PAD: Comparison = Comparison::Counted(ShortGroups::Pad);
const DROP: Comparison = Comparison::Counted(ShortGroups::Drop);

/// Returns the plan of a group of which the last trials sampled nothing.
fn planned_with_rowless(rules: Rules, trials: Vec<RowFacts>, rowless: usize) -> Plan {
    let mut survey = Survey::new(rules);
    let with_rows = trials.len() - rowless;
    for (index, trial) in trials.into_iter().enumerate() {
        if index < with_rows { survey.trial(trial) } else { survey.trial_without_rows(trial) }.unwrap();
    }
    survey.plan().unwrap()
}

/// Returns the numbers that a trainer of counted groups gets as rewards, in order.
fn handed_over(plan: &Plan) -> Vec<f64> {
    let mut numbers: Vec<_> =
        plan.verdicts.values().map(|verdict| verdict.reward.or(verdict.stand_in).unwrap()).collect();
    numbers.extend(plan.rowless_trials().map(|trial| trial.reward.or(trial.stand_in).unwrap()));
    numbers.sort_by(f64::total_cmp);
    numbers
}

#[test]
fn a_group_in_which_nothing_is_trained_is_left_out_of_every_format() {
    for comparison in [Comparison::Never, Comparison::Named, PAD, DROP] {
        let rules = Rules { failed: Failed::Mask, ..compared(comparison) };
        let trials =
            [in_group("bad", group(&[None, None])), in_group("good", group(&[Some(1.0), Some(0.0)]))];
        let plan = planned(rules, trials.concat()).unwrap();
        assert_eq!(
            (left_out(&plan), plan.trials()),
            (vec![(LeftOut::NothingTrained, 2)], 2),
            "{comparison:?}"
        );
    }
    let ungrouped = RowFacts { group_id: None, ..trial("x", 0, None) };
    let plan = planned(compared(Comparison::Never), [ungrouped.clone()]).unwrap();
    assert_eq!(left_out(&plan), [(LeftOut::NothingTrained, 1)]);
    let rules = Rules { untrained_groups: true, ..compared(Comparison::Never) };
    assert_eq!(planned(rules, [ungrouped]).unwrap().trials(), 1);
}

/// The tokens of the first trial are the only ones that could be trained.
#[test]
fn a_group_whose_rewards_are_of_trials_without_tokens_trains_nothing() {
    let plan = planned_with_rowless(compared(Comparison::Named), group(&[None, Some(1.0), Some(0.0)]), 2);
    assert_eq!(left_out(&plan), [(LeftOut::Failed, 1), (LeftOut::NothingTrained, 2)]);
}

#[test]
fn a_lone_survivor_is_left_out_where_the_trainer_compares() {
    for comparison in [Comparison::Named, PAD, DROP] {
        let plan = planned(compared(comparison), group(&[Some(1.0), None, None, None])).unwrap();
        assert_eq!(plan.trials(), 0, "{comparison:?}");
        assert!(
            left_out(&plan)
                .contains(&(LeftOut::OnlyReward, if comparison == Comparison::Named { 1 } else { 4 }))
        );
    }
    let plan = planned(rules(), group(&[Some(1.0), None])).unwrap();
    assert_eq!(
        advantages(&plan),
        [("t0", Some(0.0)), ("t1", Some(0.0))].into(),
        "with an advantage it is harmless"
    );
}

/// Trainers without a group, such as those with a critic, open groups of one sample.
#[test]
fn a_group_of_one_sample_is_no_survivor() {
    for comparison in [Comparison::Never, Comparison::Named, PAD, DROP] {
        assert_eq!(planned(compared(comparison), group(&[Some(1.0)])).unwrap().trials(), 1);
        let ungrouped = RowFacts { group_id: None, group_size: None, ..trial("x", 0, Some(1.0)) };
        assert_eq!(planned(compared(comparison), [ungrouped]).unwrap().trials(), 1);
    }
}

#[test]
fn failed_trials_do_not_change_the_statistics_of_a_counted_group() {
    let plan = planned(compared(PAD), group(&[Some(1.0), Some(0.0), None, None])).unwrap();
    let distance = 0.5_f64.sqrt();
    assert_eq!(handed_over(&plan), [0.5 - distance, 0.0, 1.0, 0.5 + distance]);
    assert_eq!((plan.counts().failed, plan.counts().smaller_deviation), (2, 0));
    let one = planned(compared(PAD), group(&[Some(1.0), Some(0.0), None])).unwrap();
    assert_eq!(handed_over(&one), [0.0, 0.5, 1.0], "one number alone cannot keep the deviation");
    assert_eq!(one.counts().smaller_deviation, 1);
    let equal = planned(compared(PAD), group(&[Some(0.1), Some(0.1), Some(0.1), None])).unwrap();
    assert_eq!((handed_over(&equal), equal.counts().smaller_deviation), (vec![0.1; 4], 0));
}

#[test]
fn a_short_group_is_filled_or_left_out_where_the_trainer_counts() {
    let both = || {
        let short = group(&[Some(1.0), Some(0.0)]);
        let short = short.into_iter().map(|trial| RowFacts { group_size: Some(4), ..trial }).collect();
        [in_group("short", short), in_group("whole", group(&[Some(1.0), Some(0.5), Some(0.0), Some(0.0)]))]
            .concat()
    };
    let rules = |comparison| Rules { open_groups: true, ..compared(comparison) };
    let padded = planned(rules(PAD), both()).unwrap();
    assert_eq!((padded.trials(), padded.counts().fillers), (6, 2));
    let fillers: Vec<_> = padded.rowless_trials().collect();
    let group = Some(GroupPlace { ordinal: 0, trials: 4 });
    assert!(fillers.iter().all(|trial| trial.group == group && trial.reward.is_none()));
    let names: Vec<_> =
        fillers.iter().map(|trial| (trial.rows[0].trial_id.as_str(), trial.rows[0].sample_index)).collect();
    assert_eq!(names, [("short-stand-in-2", 2), ("short-stand-in-3", 3)]);
    let dropped = planned(rules(DROP), both()).unwrap();
    assert_eq!((dropped.trials(), left_out(&dropped)), (4, vec![(LeftOut::ShortGroup, 2)]));
}

#[test]
fn a_trial_that_sampled_nothing_counts_with_its_reward() {
    let rewards = [Some(1.0), Some(1.0), Some(0.0), Some(0.0)];
    let grpo = Rules { advantage: Advantage::Grpo, ..rules() };
    let plan = planned_with_rowless(grpo, group(&rewards), 1);
    let expected = 0.5 / ((1.0_f64 / 3.0).sqrt() + 1e-6);
    let expected = [("t0", Some(expected)), ("t1", Some(expected)), ("t2", Some(-expected))];
    assert_eq!(advantages(&plan), expected.into());
    assert_eq!((plan.counts().rewarded_without_tokens, plan.rowless_trials().count()), (1, 0));
    for comparison in [Comparison::Named, PAD, DROP] {
        let plan = planned_with_rowless(compared(comparison), group(&rewards), 1);
        assert_eq!(handed_over(&plan), [0.0, 0.0, 1.0, 1.0], "{comparison:?}");
        let rowless: Vec<_> = plan.rowless_trials().collect();
        assert_eq!(
            (rowless.len(), rowless[0].reward, &*rowless[0].rows[0].loss_mask),
            (1, Some(0.0), &[0, 0][..])
        );
    }
}

/// Such a trial blocks a counted group only if short groups are dropped.
#[test]
fn a_failed_trial_that_sampled_nothing_is_filled_left_out_or_ends_its_group() {
    let rewards = [Some(1.0), Some(0.0), None];
    let padded = planned_with_rowless(compared(PAD), group(&rewards), 1);
    assert_eq!((padded.trials(), padded.rowless_trials().count(), padded.counts().fillers), (2, 1, 0));
    let named = planned_with_rowless(compared(Comparison::Named), group(&rewards), 1);
    assert_eq!((named.trials(), left_out(&named)), (2, vec![(LeftOut::Failed, 1)]));
    let dropped = planned_with_rowless(compared(DROP), group(&rewards), 1);
    assert_eq!(
        (dropped.trials(), left_out(&dropped)),
        (0, vec![(LeftOut::WithoutTokens, 1), (LeftOut::ShortGroup, 2)])
    );
}

fn moments(rewards: &[f64]) -> (f64, f64) {
    let count = rewards.len() as f64;
    let mean = rewards.iter().sum::<f64>() / count;
    let squares: f64 = rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0)).sqrt())
}

proptest! {
    /// A trainer computes the same mean and deviation as from the trials with a reward alone.
    #[test]
    fn stand_ins_keep_mean_and_deviation(
        rewards in prop::collection::vec(-10.0..10.0_f64, 2..9),
        failed in 2..9_usize,
    ) {
        let given: Vec<_> = rewards.iter().copied().map(Some).chain(vec![None; failed]).collect();
        let plan = planned(compared(PAD), group(&given)).unwrap();
        let ((mean, deviation), (with, with_deviation)) = (moments(&rewards), moments(&handed_over(&plan)));
        prop_assert!((mean - with).abs() < 1e-9 && (deviation - with_deviation).abs() < 1e-9);
    }
}
