use std::collections::BTreeMap;

use super::super::projection::{RowAge, RowFacts, SpanAge};
use super::super::rules::{Comparison, Failed, OnFork, Staleness};
use super::*;
use crate::export::format::Format;
use crate::rollout::RewardRule;

pub(super) fn rules() -> Rules {
    Rules {
        on_fork: OnFork::All,
        failed: Failed::Mask,
        advantage: Advantage::Mean,
        comparison: Comparison::Never,
        ..Format::Jsonl.rules()
    }
}

/// Returns a trial of group `g`, which has three samples.
pub(super) fn trial(name: &str, sample_index: i32, reward: Option<f64>) -> RowFacts {
    RowFacts {
        trial_id: name.to_owned(),
        task_id: "task".to_owned(),
        group_id: Some("g".to_owned()),
        group_size: Some(3),
        sample_index,
        attempt: 0,
        superseded: false,
        reward,
        rewards: BTreeMap::new(),
        reward_valid: reward.is_some(),
        failure_cause: reward.is_none().then(|| "VerifierTimeoutError".to_owned()),
        suspicious: None,
        tokenizer_hash: None,
    }
}

fn three() -> [RowFacts; 3] {
    [trial("a", 0, Some(1.0)), trial("b", 1, Some(0.0)), trial("c", 2, None)]
}

pub(super) fn planned(rules: Rules, trials: impl IntoIterator<Item = RowFacts>) -> Result<Plan, PlanError> {
    let mut survey = Survey::new(rules);
    trials.into_iter().for_each(|trial| survey.trial(trial).unwrap());
    survey.plan()
}

/// Returns the advantage of each exported trial, by name.
pub(super) fn advantages(plan: &Plan) -> BTreeMap<&str, Option<f64>> {
    plan.verdicts.iter().map(|(trial, verdict)| (trial.as_str(), verdict.advantage)).collect()
}

pub(super) fn left_out(plan: &Plan) -> Vec<(LeftOut, u64)> {
    plan.left_out().collect()
}

#[test]
fn a_failed_trial_stays_in_its_group_and_counts_for_nothing() {
    let plan = planned(rules(), three()).unwrap();
    assert_eq!(advantages(&plan), [("a", Some(0.5)), ("b", Some(-0.5)), ("c", Some(0.0))].into());
    let group = Some(GroupPlace { ordinal: 0, trials: 3 });
    let failed = Verdict { reward: None, stand_in: None, is_masked: true, advantage: Some(0.0), group };
    assert_eq!(plan.verdicts["c"], failed);
    assert_eq!((plan.counts().failed, plan.counts().groups, plan.trials()), (1, 1, 3));
}

#[test]
fn a_reward_that_does_not_measure_the_agent_is_a_failure() {
    let mut trials = three();
    trials[0].reward_valid = false;
    let plan = planned(rules(), trials).unwrap();
    assert_eq!((plan.counts().failed, plan.counts().alone), (2, 1));
    assert_eq!(plan.verdicts["a"].reward, None, "it must not be anybody's baseline");
}

#[test]
fn a_failed_trial_can_count_as_zero() {
    let plan = planned(Rules { failed: Failed::Zero, ..rules() }, three()).unwrap();
    let third = 1.0 / 3.0;
    assert_eq!(
        advantages(&plan),
        [("a", Some(1.0 - third)), ("b", Some(-third)), ("c", Some(-third))].into()
    );
    assert_eq!((plan.verdicts["c"].reward, plan.verdicts["c"].is_masked), (Some(0.0), false));
}

#[test]
fn a_failed_trial_can_be_dropped_alone_or_with_its_group() {
    let others = || ["d", "e", "f"].into_iter().zip(0..).map(|(name, index)| other(name, index));
    let plan =
        planned(Rules { failed: Failed::Drop, ..rules() }, three().into_iter().chain(others())).unwrap();
    assert_eq!(left_out(&plan), [(LeftOut::Failed, 1)]);
    assert_eq!(plan.verdicts["a"].group, Some(GroupPlace { ordinal: 0, trials: 2 }));
    assert_eq!(plan.verdicts["d"].group, Some(GroupPlace { ordinal: 1, trials: 3 }));
    let rules = Rules { failed: Failed::DropGroup, ..rules() };
    let plan = planned(rules, three().into_iter().chain(others())).unwrap();
    assert_eq!(left_out(&plan), [(LeftOut::Failed, 1), (LeftOut::FailedGroup, 2)]);
    assert_eq!(plan.verdicts["d"].group, Some(GroupPlace { ordinal: 0, trials: 3 }), "counted as exported");
}

fn other(name: &str, sample_index: i32) -> RowFacts {
    RowFacts { group_id: Some("other".to_owned()), ..trial(name, sample_index, Some(1.0)) }
}

#[test]
fn only_whole_groups_are_taken() {
    let two = || three().into_iter().take(2);
    let plan = planned(rules(), two()).unwrap();
    assert_eq!((plan.trials(), left_out(&plan)), (0, vec![(LeftOut::OpenGroup, 2)]));
    let plan = planned(Rules { open_groups: true, ..rules() }, two()).unwrap();
    assert_eq!(plan.verdicts["a"].group, Some(GroupPlace { ordinal: 0, trials: 2 }));
    let mut survey = Survey::new(rules());
    two().for_each(|trial| survey.trial(trial).unwrap());
    survey.group_is_closed("g".to_owned());
    assert_eq!(survey.plan().unwrap().trials(), 2);
}

#[test]
fn a_group_of_unknown_size_is_whole_when_it_is_closed() {
    let trials = three().map(|trial| RowFacts { group_size: None, ..trial });
    assert_eq!(planned(rules(), trials).unwrap().trials(), 0);
}

#[test]
fn a_trial_that_sampled_nothing_makes_its_group_whole_and_is_not_exported() {
    let mut survey = Survey::new(rules());
    let [a, b, c] = three();
    survey.trial(a).unwrap();
    survey.trial(b).unwrap();
    survey.trial_without_rows(c).unwrap();
    let plan = survey.plan().unwrap();
    assert_eq!((plan.trials(), left_out(&plan)), (2, vec![(LeftOut::WithoutTokens, 1)]));
}

#[test]
fn the_last_attempt_counts_whatever_its_rows_are() {
    let retry = || RowFacts { attempt: 1, ..trial("c2", 2, Some(1.0)) };
    let plan = planned(rules(), three().into_iter().chain([retry()])).unwrap();
    assert_eq!(left_out(&plan), [(LeftOut::Superseded, 1)]);
    assert!(!plan.verdicts.contains_key("c"), "{plan:?}");
    let told = RowFacts { superseded: true, ..trial("z", 0, Some(1.0)) };
    let [_, b, c] = three();
    let plan = planned(Rules { open_groups: true, ..rules() }, [told, b, c]).unwrap();
    assert_eq!(left_out(&plan), [(LeftOut::Superseded, 1)], "even if the other attempt is elsewhere");
    let rules = Rules { superseded: true, ..rules() };
    assert_eq!(planned(rules, three().into_iter().chain([retry()])).unwrap().trials(), 4);
}

#[test]
fn a_superseded_attempt_does_not_make_a_group_whole() {
    let [a, b, _] = three();
    let retry = RowFacts { attempt: 1, ..trial("b2", 1, Some(1.0)) };
    let plan = planned(rules(), [a, b, retry]).unwrap();
    assert_eq!(left_out(&plan), [(LeftOut::Superseded, 1), (LeftOut::OpenGroup, 2)]);
}

#[test]
fn one_sample_twice_is_refused() {
    let twice = trial("d", 2, Some(1.0));
    let error = planned(rules(), three().into_iter().chain([twice])).unwrap_err();
    assert!(
        matches!(&error, PlanError::OneSampleTwice { first, second, .. } if first == "c" && second == "d")
    );
}

#[test]
fn trials_of_a_group_agree_on_its_size() {
    let [a, b, mut c] = three();
    c.group_size = Some(4);
    let error = planned(rules(), [a, b, c]).unwrap_err();
    assert!(matches!(error, PlanError::GroupSize { said: Some(4), known: Some(3), .. }), "{error}");
}

/// An advantage of a group with one member would have no meaning.
#[test]
fn a_trial_that_alone_counts_has_no_advantage_and_is_reported() {
    for advantage in [Advantage::Grpo, Advantage::Rloo, Advantage::Mean] {
        let trials = [trial("a", 0, Some(1.0)), trial("b", 1, None), trial("c", 2, None)];
        let plan = planned(Rules { advantage, ..rules() }, trials).unwrap();
        assert_eq!(advantages(&plan), [("a", Some(0.0)), ("b", Some(0.0)), ("c", Some(0.0))].into());
        assert_eq!(plan.counts().alone, 1);
    }
}

#[test]
fn a_trial_without_a_group_is_whole_and_cannot_be_weighed() {
    let alone = || RowFacts { group_id: None, ..trial("x", 0, Some(1.0)) };
    let plan = planned(Rules { advantage: Advantage::None, ..rules() }, [alone()]).unwrap();
    let verdict =
        Verdict { reward: Some(1.0), stand_in: None, is_masked: false, advantage: None, group: None };
    assert_eq!(plan.verdicts["x"], verdict);
    let error = planned(rules(), [alone()]).unwrap_err();
    assert!(error.to_string().contains("trial x has no group in which --advantage mean"), "{error}");
}

#[test]
fn rewards_outside_the_numbers_are_refused() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = planned(rules(), [trial("a", 0, Some(value))]).unwrap_err();
        assert!(matches!(error, PlanError::Reward { ref trial_id, .. } if trial_id == "a"), "{error}");
    }
    let huge = [trial("a", 0, Some(f64::MAX)), trial("b", 1, Some(f64::MAX)), trial("c", 2, Some(0.0))];
    let error = planned(rules(), huge).unwrap_err();
    assert_eq!(error, PlanError::Advantage { group_id: "g".to_owned() });
}

#[test]
fn another_of_a_trials_rewards_can_be_trained_on() {
    let with =
        |trial: RowFacts, value: f64| RowFacts { rewards: [("tests".to_owned(), value)].into(), ..trial };
    let [a, b, c] = three();
    let named = |name: &str| Rules { reward: Some(RewardRule::Named(name.to_owned())), ..rules() };
    let trials = || [with(a.clone(), 4.0), with(b.clone(), 2.0), c.clone()];
    let plan = planned(named("tests"), trials()).unwrap();
    assert_eq!(advantages(&plan), [("a", Some(1.0)), ("b", Some(-1.0)), ("c", Some(0.0))].into());
    let error = planned(named("test"), trials()).unwrap_err();
    assert_eq!(error, PlanError::NoSuchReward { name: "test".to_owned(), known: vec!["tests".to_owned()] });
}

/// Such a reward is not valid for lack of a choice, and the rules choose.
#[test]
fn a_choice_among_several_rewards_makes_them_valid() {
    let of = |name, index, value: f64, failure_cause: Option<&str>| RowFacts {
        rewards: [("style".to_owned(), 1.0), ("tests".to_owned(), value)].into(),
        failure_cause: failure_cause.map(str::to_owned),
        ..trial(name, index, None)
    };
    let trials =
        || [of("a", 0, 1.0, None), of("b", 1, 0.0, None), of("c", 2, 5.0, Some("AgentTimeoutError"))];
    let plan =
        planned(Rules { reward: Some(RewardRule::Named("tests".to_owned())), ..rules() }, trials()).unwrap();
    assert_eq!(advantages(&plan), [("a", Some(0.5)), ("b", Some(-0.5)), ("c", Some(0.0))].into());
    let plan = planned(rules(), trials()).unwrap();
    assert_eq!((plan.trials(), plan.counts().unchosen_rewards), (0, 3));
    assert_eq!(plan.reward_names(), ["style", "tests"]);
}

/// Their ids belong to two vocabularies, and no trainer checks that.
#[test]
fn trials_of_two_tokenizers_are_refused() {
    let with = |trial: RowFacts, hash: &str| RowFacts { tokenizer_hash: Some(hash.to_owned()), ..trial };
    let [a, b, c] = three();
    let error = planned(rules(), [with(a.clone(), "0123"), b.clone(), with(c.clone(), "4567")]).unwrap_err();
    let expected = "trials a and c are of two tokenizers (0123 and 4567), whose ids mean different tokens; export them apart";
    assert_eq!(error.to_string(), expected);
    let unknown = [with(a.clone(), "0123"), b.clone(), with(c.clone(), "0123")];
    assert_eq!(planned(rules(), unknown).unwrap().trials(), 3, "nothing speaks against what is unknown");
    let dropped = Rules { failed: Failed::Drop, ..rules() };
    let plan = planned(dropped, [with(a, "0123"), b, with(c, "4567")]).unwrap();
    assert_eq!(plan.trials(), 2, "what is left out is of no matter");
}

/// Returns a branch whose trainable tokens were sampled by these versions.
fn branch(trial_id: &str, versions: &[i32]) -> RowAge {
    let trainable_mask = vec![1; versions.len()];
    RowAge { trial_id: trial_id.to_owned(), trainable_mask, token_version: versions.to_vec(), calls: vec![] }
}

fn aged(rules: Rules, ages: &[RowAge]) -> Vec<(LeftOut, u64)> {
    let mut survey = Survey::new(Rules { open_groups: true, advantage: Advantage::None, ..rules });
    survey.trial(trial("a", 0, Some(1.0))).unwrap();
    survey.trial(trial("b", 1, Some(1.0))).unwrap();
    for rows in ages.chunk_by(|left, right| left.trial_id == right.trial_id) {
        survey.age(rows);
    }
    left_out(&survey.plan().unwrap())
}

fn at_most(limit: u32, policy_version: Option<i32>) -> Rules {
    Rules { staleness: Some(Staleness { limit, policy_version }), ..rules() }
}

#[test]
fn a_trial_with_too_old_a_token_is_left_out() {
    let ages = [branch("a", &[1, 3]), branch("b", &[3, 4])];
    assert_eq!(aged(at_most(3, None), &ages), []);
    assert_eq!(aged(at_most(2, None), &ages), [(LeftOut::Stale, 1)]);
    assert_eq!(aged(at_most(0, None), &ages), [(LeftOut::Stale, 2)]);
    assert_eq!(aged(at_most(3, Some(5)), &ages), [(LeftOut::Stale, 1)], "by the trainer's own version");
    assert_eq!(aged(at_most(0, Some(0)), &ages), [], "tokens of the future are not stale");
}

#[test]
fn what_is_not_trained_is_not_stale() {
    let mut old = RowAge { trainable_mask: vec![0, 1, 1], ..branch("a", &[-1, 0, 5]) };
    old.calls = vec![SpanAge { start: 1, end: 2, constrained: true }];
    assert_eq!(aged(at_most(0, None), &[old.clone()]), []);
    let rules = Rules { train_constrained: true, ..at_most(0, None) };
    assert_eq!(aged(rules, &[old.clone()]), [(LeftOut::Stale, 1)]);
    old.calls.clear();
    old.trainable_mask = vec![0, 0, 1];
    assert_eq!(aged(at_most(0, None), &[old]), []);
    let forked = [branch("a", &[0]), branch("a", &[1, 1])];
    assert_eq!(aged(at_most(0, None), &forked), [(LeftOut::Stale, 1)]);
    let longest = Rules { on_fork: OnFork::Longest, ..at_most(0, None) };
    assert_eq!(aged(longest, &forked), [], "the old branch is not exported");
}

#[test]
fn a_trial_that_comes_twice_is_refused() {
    let mut survey = Survey::new(rules());
    survey.trial(trial("a", 0, None)).unwrap();
    assert!(
        survey
            .trial(trial("a", 0, None))
            .unwrap_err()
            .to_string()
            .starts_with("trial a is in the input twice")
    );
}
