use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::export::exporter::GroupPlace;
use crate::export::testing::any_trial::{any_group, one_branch};
use crate::export::testing::fixture::{straight, with_messages};
use crate::export::testing::read_back::{objects, told, written};

/// Returns a trial of the group with this reward, whose only call has these messages.
fn said(sample_index: i32, reward: f64, messages: &Value) -> Trial {
    let mut trial = straight();
    let row = &mut trial.rows[0];
    row.trial_id = format!("t{sample_index}");
    row.sample_index = sample_index;
    row.calls[1].messages = Some(messages.to_string());
    Trial { reward: Some(reward), advantage: None, ..trial }
}

fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

fn answer(content: &str) -> Value {
    json!({"role": "assistant", "content": content})
}

fn pairs(trials: impl IntoIterator<Item = Trial>) -> (Vec<Value>, Vec<String>) {
    pairs_by(0.0, trials)
}

fn pairs_by(min_margin: f64, trials: impl IntoIterator<Item = Trial>) -> (Vec<Value>, Vec<String>) {
    pairs_of(PairRules { min_margin, ..PairRules::default() }, trials)
}

fn pairs_of(rules: PairRules, trials: impl IntoIterator<Item = Trial>) -> (Vec<Value>, Vec<String>) {
    let (lines, omissions) = written(|out| PreferenceExporter::new(out, rules), trials).unwrap();
    (lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect(), told(&omissions))
}

/// Returns the reason for which a group of two trials with these messages has no pair.
fn no_pair(better: &Value, worse: &Value) -> String {
    let (lines, told) = pairs([said(0, 1.0, better), said(1, 0.0, worse)]);
    assert_eq!(lines, Vec::<Value>::new());
    told.join("; ")
}

#[test]
fn the_best_and_the_worst_trial_are_a_pair() {
    let trials = [
        said(0, 0.5, &json!([user("a"), answer("middle")])),
        said(1, 0.0, &json!([user("a"), answer("bad")])),
        said(2, 1.0, &json!([user("a"), answer("good")])),
    ];
    let group = trials.map(|trial| Trial { group: Some(GroupPlace { ordinal: 0, trials: 3 }), ..trial });
    let (lines, told) = pairs(group);
    let expected = json!({
        "prompt": [user("a")], "chosen": [answer("good")], "rejected": [answer("bad")],
        "score_chosen": 1.0, "score_rejected": 0.0, "task_id": "org/task", "group_id": "group",
        "chosen_trial_id": "t2", "rejected_trial_id": "t1",
    });
    assert_eq!(lines, [expected]);
    assert_eq!(told, ["1 trials: neither the best nor the worst of their group"]);
}

#[test]
fn the_prompt_ends_before_an_answer_of_both() {
    let better = json!([user("a"), answer("b"), user("c"), answer("d")]);
    let split = |worse: &Value| {
        let (lines, told) = pairs([said(0, 1.0, &better), said(1, 0.0, worse)]);
        (lines[0]["prompt"].as_array().unwrap().len(), told.len())
    };
    assert_eq!(split(&json!([user("a"), answer("b"), user("c"), answer("x")])), (3, 0));
    assert_eq!(
        split(&json!([user("a"), answer("x")])),
        (1, 1),
        "the other messages of `chosen` are reported"
    );
    // The result of the same answer differs, so the answer is the first message of both sides.
    assert_eq!(split(&json!([user("a"), answer("b"), user("x"), answer("d")])), (1, 1));
}

#[test]
fn a_group_without_a_pair_is_reported_with_its_reason() {
    let good = json!([user("a"), answer("b")]);
    assert_eq!(no_pair(&good, &good), "1 groups: their best and worst conversation have the same words");
    let other = json!([user("x"), answer("b")]);
    let expected = "1 groups: their best and worst conversation begin with different messages (--differing-prompts makes \
                    pairs of these)";
    assert_eq!(no_pair(&good, &other), expected);
    let mut tooled = said(1, 0.0, &json!([user("a"), answer("x")]));
    tooled.rows[0].calls[1].tools = Some("[1]".to_owned());
    let (_, told) = pairs([said(0, 1.0, &good), tooled]);
    assert_eq!(told, ["1 groups: their best and worst trial were offered different tools"]);
    let (_, told) = pairs([said(0, 1.0, &good), said(1, 1.0, &other)]);
    assert_eq!(told, ["1 groups: all of their rewards are equal"]);
    let (_, told) = pairs([said(0, 1.0, &good), straight()]);
    let expected = [
        "1 trials: their messages were not recorded",
        "1 groups: fewer than two of their trials can be compared",
    ];
    assert_eq!(told, expected);
    let (_, told) = pairs([Trial { group: None, ..said(0, 1.0, &good) }]);
    assert_eq!(told, ["1 trials: they have no group, so that there is nothing to compare"]);
}

#[test]
fn the_prompt_of_the_chosen_conversation_can_stand_for_both() {
    let rules = PairRules { differing_prompts: true, ..PairRules::default() };
    let trial =
        |index, reward, prompt: &str, words: &str| said(index, reward, &json!([user(prompt), answer(words)]));
    let (lines, told) = pairs_of(rules, [trial(0, 0.0, "on host a", "x"), trial(1, 1.0, "on host b", "y")]);
    let sides = (&lines[0]["prompt"], &lines[0]["chosen"], &lines[0]["rejected"]);
    assert_eq!(sides, (&json!([user("on host b")]), &json!([answer("y")]), &json!([answer("x")])));
    assert_eq!(
        told,
        [
            "1 pairs: the prompt of the rejected conversation, in the place of which that of the chosen one stands"
        ]
    );
    let (lines, told) = pairs_of(rules, [trial(0, 0.0, "a", "x"), trial(1, 1.0, "a", "y")]);
    assert_eq!((lines.len(), told.len()), (1, 0), "a common prompt needs no other");
    let alone = said(1, 1.0, &json!([answer("no prompt")]));
    assert_eq!(pairs_of(rules, [trial(0, 0.0, "a", "x"), alone]).0.len(), 0);
}

#[test]
fn a_small_difference_is_no_pair() {
    let trials =
        || [said(0, 0.6, &json!([user("a"), answer("b")])), said(1, 0.4, &json!([user("a"), answer("c")]))];
    assert_eq!(pairs_by(0.1, trials()).0.len(), 1);
    let (lines, told) = pairs_by(0.5, trials());
    assert_eq!(lines.len(), 0);
    assert_eq!(told, ["1 groups: their highest and lowest reward differ by less than --min-margin"]);
}

#[test]
fn several_branches_are_refused() {
    let refusal = written(
        |out| PreferenceExporter::new(out, PairRules::default()),
        [crate::export::testing::fixture::forked()],
    );
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.starts_with("trial forked, branch 1: a pair has one conversation"), "{refusal}");
}

proptest! {
    #[test]
    fn a_pair_is_both_conversations(group in any_group()) {
        let group: Vec<_> = group.into_iter().map(one_branch).map(with_messages).collect();
        let lines = objects(|out| PreferenceExporter::new(out, PairRules::default()), group.clone());
        prop_assert!(lines.len() <= 1);
        for line in lines {
            prop_assert!(line["score_chosen"].as_f64() > line["score_rejected"].as_f64());
            for (side, name) in [("chosen", "chosen_trial_id"), ("rejected", "rejected_trial_id")] {
                prop_assert_eq!(&line[side][0]["role"], "assistant");
                let row = &group.iter().find(|trial| line[name] == trial.rows[0].trial_id).unwrap().rows[0];
                let whole = [line["prompt"].as_array().unwrap().clone(), line[side].as_array().unwrap().clone()].concat();
                let last = row.calls.last().unwrap().messages.as_deref().unwrap();
                prop_assert_eq!(json!(whole), serde_json::from_str::<Value>(last).unwrap());
            }
        }
    }
}
