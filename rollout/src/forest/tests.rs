use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::call::{CallRole, CallStatus, Dialect, Sampling};
use crate::continuation::{AnswerRef, Class};
use crate::ids::{CallId, TrialId};
use crate::token::{Logprob, TokenId};

/// Returns a complete call, the `n`th of its trial, with these ids and a logprob for each sampled token.
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
        served_model: None,
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

/// Returns the cause of each branch and its calls.
fn causes_and_paths(calls: &[Call]) -> Vec<(BranchCause, Vec<String>)> {
    let forest = Forest::build(calls);
    let name = |&i: &usize| format!("{}.{}", forest.nodes()[i].call.call_id, forest.nodes()[i].choice.index);
    let path = |branch: &Branch| forest.path_to(branch.leaf).iter().map(name).collect();
    forest.branches().iter().map(|branch| (branch.cause, path(branch))).collect()
}

fn branches(calls: &[Call], expected: &[(BranchCause, &[&str])]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|&(cause, path)| (cause, path.iter().map(|&p| p.to_owned()).collect::<Vec<_>>()))
        .collect();
    assert_eq!(causes_and_paths(calls), expected);
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
    // The second call's prompt also begins with the first's answer, but the longer match counts.
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

#[test]
fn an_answer_asked_for_later_is_no_ones_parent() {
    // The agent sent an answer of its own, and then sampled the same answer from the start of the conversation.
    let calls = [call(0, &[1, 2, 3], &[&[4]]), call(1, &[1], &[&[2]])];
    branches(&calls, &[(FirstCall, &["c0000.0"]), (NoSharedPrefix, &["c0001.0"])]);
    // A later answer does not make the parent ambiguous either.
    let calls = [call(0, &[1], &[&[2]]), call(1, &[1, 2, 3], &[&[4]]), call(2, &[1], &[&[2]])];
    assert!(Forest::build(&calls).nodes().iter().all(|node| !node.is_ambiguous));
}

#[test]
fn a_retried_turn_is_a_fork_and_what_follows_it_is_anyones() {
    let calls = [
        call(0, &[1], &[&[2]]),
        call(1, &[1, 2, 3], &[&[4]]),
        call(2, &[1, 2, 3], &[&[4]]),
        call(3, &[1, 2, 3, 4, 5], &[&[6]]),
        call(4, &[1, 2, 3, 4, 5, 6, 7], &[&[8]]),
    ];
    branches(
        &calls,
        &[(FirstCall, &["c0000.0", "c0001.0", "c0003.0", "c0004.0"]), (Fork, &["c0000.0", "c0002.0"])],
    );
    let forest = Forest::build(&calls);
    let ambiguous: Vec<_> = forest.nodes().iter().map(|node| node.is_ambiguous).collect();
    assert_eq!(ambiguous, [false, false, false, true, false], "only whose answer it extends is unknown");
}

/// Returns the call with the continuation that the proxy found at its arrival.
pub(crate) fn with_continuation(call: Call, continuation: Continuation) -> Call {
    Call { continuation: Some(continuation), ..call }
}

#[test]
fn a_cause_that_was_found_out_counts_where_ids_do_not_go_on() {
    let parent = AnswerRef { call_id: CallId::new("c0000").unwrap(), choice: 0 };
    let edited = Continuation::Rendered {
        parent: parent.clone(),
        cause: BranchCause::TemplateRewroteHistory,
        class: Some(Class::Rewritten),
    };
    let first = with_continuation(
        call(0, &[1], &[&[2], &[5]]),
        Continuation::Fresh { cause: BranchCause::FirstCall },
    );
    let calls = [
        first.clone(),
        with_continuation(call(1, &[1, 9, 3], &[&[4]]), edited.clone()),
        // The server's own rendering preserved the ids, twice.
        with_continuation(call(2, &[1, 2, 3], &[&[4]]), edited.clone()),
        with_continuation(call(3, &[1, 2, 7], &[&[4]]), edited),
        with_continuation(call(4, &[8], &[&[8]]), Continuation::Fresh { cause: BranchCause::SubAgent }),
        with_continuation(
            call(5, &[7], &[&[8]]),
            Continuation::Spliced { parent: parent.clone(), class: Class::Equal, is_edited: false },
        ),
        with_continuation(call(6, &[6], &[&[8]]), Continuation::Fresh { cause: BranchCause::FirstCall }),
        with_continuation(
            call(7, &[1, 2, 6], &[&[8]]),
            Continuation::Spliced { parent, class: Class::Equal, is_edited: true },
        ),
    ];
    let causes: Vec<_> = Forest::build(&calls).branches().iter().map(|branch| branch.cause).collect();
    use BranchCause as C;
    assert_eq!(
        causes,
        [
            FirstCall,
            OtherChoice,
            C::TemplateRewroteHistory,
            Fork,
            C::SubAgent,
            NoSharedPrefix,
            NoSharedPrefix,
            C::HistoryEdited
        ]
    );
}

#[test]
fn a_branch_costs_what_no_earlier_sequence_began_with() {
    let costs = |calls: &[Call]| -> Vec<_> {
        Forest::build(calls).branches().iter().map(|branch| branch.reprefilled).collect()
    };
    let first = call(0, &[1, 2, 3], &[&[4, 5], &[6]]);
    assert_eq!(costs(std::slice::from_ref(&first)), [3, 0], "a further choice has its prompt for nothing");
    // If a prompt begins with a part of an answer, that part counts. Later answers never count.
    let calls = [first, call(1, &[1, 2, 3, 4, 9, 9], &[&[7]]), call(2, &[1, 2, 3, 4, 9, 8], &[&[7]])];
    assert_eq!(costs(&calls), [3, 0, 2, 1]);
    let retried = [call(0, &[1, 2], &[&[3]]), call(1, &[1, 2], &[&[3]])];
    assert_eq!(costs(&retried), [2, 0]);
}

/// The action of a turn in a generated trial.
#[derive(Clone, Debug)]
enum Turn {
    /// Extends an answer, or starts a conversation if there is none yet.
    Extend(prop::sample::Index),
    /// Starts a conversation.
    Fresh,
    /// Sends an earlier prompt again, and gets the same answers.
    Repeat(prop::sample::Index),
    /// Sends the beginning of an earlier prompt and answer, cut anywhere.
    Edit(prop::sample::Index, prop::sample::Index),
}

fn turn() -> impl Strategy<Value = Turn> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => index().prop_map(Turn::Extend),
        1 => Just(Turn::Fresh),
        2 => index().prop_map(Turn::Repeat),
        2 => (index(), index()).prop_map(|(which, at)| Turn::Edit(which, at)),
    ]
}

/// Generates a trial with turns that extend an earlier answer, fork, restart, are retried, edit their history or sample
/// several answers. There are few different tokens, so that prefixes also match by chance.
pub(crate) fn trial() -> impl Strategy<Value = Vec<Call>> {
    let token = 0..3u32;
    let answers = prop::collection::vec(prop::collection::vec(token.clone(), 0..3), 1..3);
    let turn = (turn(), prop::collection::vec(token, 0..3), answers);
    prop::collection::vec(turn, 0..12).prop_map(|turns| {
        let mut made: Vec<(Vec<u32>, Vec<Vec<u32>>)> = Vec::new();
        for (turn, tail, sampled) in turns {
            let sequences: Vec<_> = made
                .iter()
                .flat_map(|(prompt, answers)| {
                    answers.iter().map(move |answer| [&prompt[..], answer].concat())
                })
                .collect();
            let with_tail = |sequence: &[u32]| [sequence, tail.as_slice()].concat();
            made.push(match turn {
                _ if sequences.is_empty() => (with_tail(&[7]), sampled),
                Turn::Fresh => (with_tail(&[7]), sampled),
                Turn::Extend(which) => (with_tail(which.get::<Vec<u32>>(&sequences)), sampled),
                Turn::Repeat(which) => which.get(&made).clone(),
                Turn::Edit(which, at) => {
                    let sequence = which.get::<Vec<u32>>(&sequences);
                    (with_tail(&sequence[..=at.index(sequence.len())]), sampled)
                }
            });
        }
        let calls = made.iter().zip(0..).map(|((prompt, answers), n)| {
            let call = call(n, prompt, &answers.iter().map(Vec::as_slice).collect::<Vec<_>>());
            Call { served_model: (n % 4 == 3).then(|| "adapter".into()), ..call }
        });
        calls.collect()
    })
}

#[test]
fn a_call_extends_only_an_answer_of_its_own_model() {
    let by = |model: &str, call: Call| Call { served_model: Some(model.into()), ..call };
    let calls = [
        by("a", call(0, &[1, 2], &[&[3]])),
        by("b", call(1, &[1, 2, 3, 4], &[&[5]])),
        by("a", call(2, &[1, 2, 3, 4, 5, 6], &[&[7]])),
    ];
    let forest = Forest::build(&calls);
    let parents: Vec<_> = forest.nodes().iter().map(|node| node.parent).collect();
    assert_eq!(parents, [None, None, Some(0)]);
    assert_eq!(forest.branches().len(), 2);
}

fn tokens(node: &Node<'_>) -> Vec<TokenId> {
    node.call.prompt_token_ids.iter().chain(&node.choice.token_ids).copied().collect()
}

/// Returns a node's parent, whether it is ambiguous, and the number of known prompt tokens, by comparison with every
/// node.
fn slow_link(forest: &Forest<'_>, index: usize) -> (Option<usize>, bool, usize) {
    let node = &forest.nodes()[index];
    let prompt: Vec<_> = node.call.prompt_token_ids.iter().copied().collect();
    let earlier: Vec<_> = forest.nodes()[..index].iter().map(tokens).collect();
    let is_own = |other: usize| forest.nodes()[other].call.served_model() == node.call.served_model();
    let begins = |other: usize| is_own(other) && prompt.starts_with(&earlier[other]);
    let longest = (0..index).filter(|&other| begins(other)).map(|other| earlier[other].len()).max();
    let mut parents = (0..index).filter(|&other| Some(earlier[other].len()) == longest && begins(other));
    let shared = earlier.iter().map(|other| crate::token_list::common_prefix(other, &prompt)).max();
    (parents.next(), parents.next().is_some(), shared.unwrap_or(0))
}

proptest! {
    #[test]
    fn the_order_of_arrival_does_not_matter((calls, shuffled) in trial().prop_flat_map(|calls| (Just(calls.clone()), Just(calls).prop_shuffle()))) {
        let (forest, of_shuffled) = (Forest::build(&calls), Forest::build(&shuffled));
        prop_assert_eq!(forest.nodes(), of_shuffled.nodes());
        prop_assert_eq!(forest.branches(), of_shuffled.branches());
    }

    #[test]
    fn links_are_those_found_by_comparing_everything(calls in trial()) {
        let forest = Forest::build(&calls);
        for (index, node) in forest.nodes().iter().enumerate() {
            prop_assert_eq!((node.parent, node.is_ambiguous, node.shared), slow_link(&forest, index));
        }
    }

    #[test]
    fn every_answer_is_on_a_branch_and_every_branch_ends_in_a_leaf(calls in trial()) {
        let forest = Forest::build(&calls);
        let branches = forest.branches();
        let paths: Vec<_> = branches.iter().map(|branch| forest.path_to(branch.leaf)).collect();
        let on_branches: HashSet<_> = paths.iter().flatten().copied().collect();
        prop_assert_eq!(on_branches.len(), forest.nodes().len());
        let parents: HashSet<_> = forest.nodes().iter().filter_map(|node| node.parent).collect();
        let leaves: HashSet<_> = (0..forest.nodes().len()).filter(|index| !parents.contains(index)).collect();
        let ends: HashSet<_> = branches.iter().map(|branch| branch.leaf).collect();
        prop_assert_eq!(branches.len(), leaves.len());
        prop_assert_eq!(ends, leaves);
        for (branch, path) in branches.iter().zip(&paths) {
            prop_assert!(path.contains(&branch.start));
        }
    }

    #[test]
    fn answers_add_up_to_what_was_new_in_each_call(
        turns in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u32, 1..4_u32), 1..20),
    ) {
        let mut sequences = vec![vec![7]];
        let mut calls = Vec::new();
        let mut new = 1;
        for ((which, tail, sampled), n) in turns.into_iter().zip(0..) {
            let (tail, answer): (Vec<_>, Vec<_>) = ((0..tail).collect(), (0..sampled).collect());
            let prompt = [which.get(&sequences), &tail[..]].concat();
            new += tail.len() + answer.len();
            calls.push(call(n, &prompt, &[&answer]));
            sequences.push([prompt, answer].concat());
        }
        let forest = Forest::build(&calls);
        let begins_at = |node: &Node<'_>| node.parent.map_or(0, |parent| forest.nodes()[parent].end());
        // Calls that start over from the first token share it by chance, and each counts it once.
        let roots = forest.nodes().iter().filter(|node| node.parent.is_none()).count();
        let added: usize = forest.nodes().iter().map(|node| node.end() - begins_at(node)).sum();
        prop_assert!(added < new + roots, "{} tokens for {} new ones", added, new);
    }
}
