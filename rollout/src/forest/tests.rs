use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::call::{CallRole, CallStatus, Dialect, Sampling};
use crate::ids::{CallId, TrialId};
use crate::token::Logprob;

/// A complete call, the `n`th of its trial, with these ids and a logprob for each sampled token.
pub(crate) fn call(n: u32, prompt: &[u32], answers: &[&[u32]]) -> Call {
    let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::from(n));
    let ids = |ids: &[u32]| ids.iter().map(|&id| TokenId::try_from(id).unwrap()).collect::<Vec<_>>();
    let choices = answers.iter().zip(0..).map(|(answer, index)| Choice {
        index,
        token_ids: ids(answer),
        logprobs: answer.iter().map(|&id| Logprob::try_from(-(id as f32)).ok()).collect(),
        finish_reason: Some("stop".into()),
        stop_reason: None,
        versions: Vec::new(),
    });
    Call {
        call_id: CallId::new(format!("c{n:04}")).unwrap(),
        trial_id: TrialId::new("t").unwrap(),
        dialect: Dialect::ChatCompletions,
        model: "m".into(),
        status: CallStatus::Complete,
        role: CallRole::Main,
        continuation: None,
        prompt_token_ids: ids(prompt).into(),
        choices: choices.collect(),
        sampling: Sampling::default(),
        policy_version: 0,
        straddles_versions: false,
        version_labels: std::collections::BTreeMap::new(),
        upstream: None,
        has_media: false,
        flaws: Vec::new(),
        http_status: Some(200),
        error: None,
        started_at: at,
        first_token_at: None,
        ended_at: at,
    }
}

/// Each branch as its cause and the calls along it.
fn told(calls: &[Call]) -> Vec<(BranchCause, Vec<String>)> {
    let forest = Forest::build(calls);
    let name = |&i: &usize| format!("{}.{}", forest.nodes()[i].call.call_id, forest.nodes()[i].choice.index);
    forest.branches().iter().map(|branch| (branch.cause, branch.path.iter().map(name).collect())).collect()
}

fn branches(calls: &[Call], expected: &[(BranchCause, &[&str])]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|&(cause, path)| (cause, path.iter().map(|&p| p.to_owned()).collect::<Vec<_>>()))
        .collect();
    assert_eq!(told(calls), expected);
}

use crate::branch_cause::BranchCause::{FirstCall, Fork, NoSharedPrefix, OtherChoice};

#[test]
fn turns_that_keep_the_prefix_are_one_branch() {
    let calls = [call(0, &[1], &[&[2]]), call(1, &[1, 2, 3], &[&[4, 5]]), call(2, &[1, 2, 3, 4, 5], &[&[6]])];
    branches(&calls, &[(FirstCall, &["c0000.0", "c0001.0", "c0002.0"])]);
}

#[test]
fn a_prompt_that_keeps_no_answer_starts_a_branch() {
    let calls = [call(0, &[1], &[&[2]]), call(1, &[1, 9, 3], &[&[4]])];
    branches(&calls, &[(FirstCall, &["c0000.0"]), (NoSharedPrefix, &["c0001.0"])]);
}

#[test]
fn the_second_to_extend_an_answer_forks() {
    let calls = [
        call(0, &[1], &[&[2]]),
        call(1, &[1, 2, 3], &[&[4]]),
        call(2, &[1, 2, 7], &[&[8]]),
        call(3, &[1, 2, 3, 4, 5], &[&[6]]),
    ];
    branches(&calls, &[(FirstCall, &["c0000.0", "c0001.0", "c0003.0"]), (Fork, &["c0000.0", "c0002.0"])]);
}

#[test]
fn every_choice_is_a_branch_until_one_is_extended() {
    let calls = [call(0, &[1], &[&[2], &[3]]), call(1, &[1, 3, 9], &[&[4]])];
    branches(&calls, &[(FirstCall, &["c0000.0"]), (OtherChoice, &["c0000.1", "c0001.0"])]);
}

#[test]
fn the_deepest_answer_is_the_parent() {
    // The second call's prompt begins with the first's answer too, but the longer match counts.
    let calls = [call(0, &[1], &[&[2]]), call(1, &[1, 2], &[&[3]]), call(2, &[1, 2, 3], &[&[4]])];
    let forest = Forest::build(&calls);
    assert_eq!(forest.nodes().iter().map(|node| node.parent).collect::<Vec<_>>(), [None, Some(0), Some(1)]);
}

#[test]
fn equal_answers_make_parentage_ambiguous() {
    let calls = [call(0, &[1], &[&[2]]), call(1, &[1], &[&[2]]), call(2, &[1, 2, 3], &[&[4]])];
    let forest = Forest::build(&calls);
    assert_eq!(forest.nodes().iter().map(|node| node.is_ambiguous).collect::<Vec<_>>(), [false, false, true]);
    branches(&calls, &[(FirstCall, &["c0000.0", "c0002.0"]), (NoSharedPrefix, &["c0001.0"])]);
}

#[test]
fn calls_without_tokens_have_no_place() {
    let calls = [call(0, &[], &[&[2]]), call(1, &[1], &[&[]]), call(2, &[1], &[])];
    branches(&calls, &[]);
}

/// A trial as agents make them: turns that extend an earlier answer, restart, or sample several answers. Few different
/// tokens, so that prefixes also meet by chance.
pub(crate) fn trial() -> impl Strategy<Value = Vec<Call>> {
    let token = 0..3u32;
    let turn = (
        any::<Option<prop::sample::Index>>(),
        prop::collection::vec(token.clone(), 0..3),
        prop::collection::vec(prop::collection::vec(token, 0..3), 1..3),
    );
    prop::collection::vec(turn, 0..10).prop_map(|turns| {
        let mut answers: Vec<Vec<u32>> = Vec::new();
        let mut calls = Vec::new();
        for ((parent, tail, sampled), n) in turns.into_iter().zip(0..) {
            let mut prompt =
                parent.filter(|_| !answers.is_empty()).map_or(vec![7], |p| p.get(&answers).clone());
            prompt.extend(tail);
            answers.extend(sampled.iter().map(|answer| [&prompt[..], answer].concat()));
            calls.push(call(n, &prompt, &sampled.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        }
        calls
    })
}

proptest! {
    #[test]
    fn the_order_of_arrival_does_not_matter((calls, shuffled) in trial().prop_flat_map(|calls| (Just(calls.clone()), Just(calls).prop_shuffle()))) {
        prop_assert_eq!(told(&calls), told(&shuffled));
    }

    #[test]
    fn every_answer_is_on_a_branch_and_every_branch_ends_in_a_leaf(calls in trial()) {
        let forest = Forest::build(&calls);
        let branches = forest.branches();
        let on_branches: HashSet<_> = branches.iter().flat_map(|branch| branch.path.iter().copied()).collect();
        prop_assert_eq!(on_branches.len(), forest.nodes().len());
        let parents: HashSet<_> = forest.nodes().iter().filter_map(|node| node.parent).collect();
        let leaves: HashSet<_> = (0..forest.nodes().len()).filter(|index| !parents.contains(index)).collect();
        let ends: HashSet<_> = branches.iter().map(|branch| *branch.path.last().unwrap()).collect();
        prop_assert_eq!(branches.len(), leaves.len());
        prop_assert_eq!(ends, leaves);
    }

    #[test]
    fn a_child_begins_with_its_parent_and_no_answer_in_between_would_do(calls in trial()) {
        let forest = Forest::build(&calls);
        for node in forest.nodes() {
            let prompt = &node.call.prompt_token_ids;
            let prefixes = forest.nodes().iter().filter(|other| {
                let tokens: Vec<_> = other.tokens().collect();
                prompt.prefix(tokens.len()) == tokens
            });
            let deepest = prefixes.map(Node::end).max();
            prop_assert_eq!(node.parent.map(|parent| forest.nodes()[parent].end()), deepest);
        }
    }
}
