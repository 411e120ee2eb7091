use proptest::prelude::*;

use super::*;
use crate::call::Call;
use crate::forest::tests::{call, trial, with_continuation};
use crate::ids::CallId;
use CallRole::{Compaction, Main, Probe, SubAgent, Title};

fn of(calls: &[Call]) -> Vec<CallRole> {
    roles(&Forest::build(calls))
}

fn fresh(call: Call, cause: BranchCause) -> Call {
    with_continuation(call, Continuation::Fresh { cause })
}

/// Returns a call whose messages extend the first answer of another call, and whose ids do not.
fn rendered(call: Call, parent: u32) -> Call {
    let parent = AnswerRef { call_id: CallId::new(format!("c{parent:04}")).unwrap(), choice: 0 };
    let cause = BranchCause::TemplateRewroteHistory;
    with_continuation(call, Continuation::Rendered { parent, cause, class: None })
}

fn in_role(call: Call, role: CallRole) -> Call {
    Call { role, ..call }
}

#[test]
fn a_conversation_of_another_kind_is_a_sub_agents_to_its_end() {
    let calls = [
        call(0, &[1], &[&[2]]),
        fresh(call(1, &[10], &[&[11], &[12]]), BranchCause::SubAgent),
        call(2, &[10, 11, 13], &[&[14]]),
        rendered(call(3, &[10, 15], &[&[16]]), 2),
        rendered(call(4, &[1, 3], &[&[4]]), 0),
        fresh(call(5, &[20], &[&[21]]), BranchCause::HistoryEdited),
    ];
    assert_eq!(of(&calls), [Main, SubAgent, SubAgent, SubAgent, SubAgent, Main, Main]);
}

#[test]
fn what_comes_after_a_title_or_a_probe_is_the_first_conversation() {
    let calls = [
        in_role(call(0, &[1], &[&[2]]), Probe),
        in_role(fresh(call(1, &[3], &[&[4]]), BranchCause::SubAgent), Title),
        fresh(call(2, &[5], &[&[6]]), BranchCause::SubAgent),
        fresh(call(3, &[7], &[&[8]]), BranchCause::SubAgent),
    ];
    assert_eq!(of(&calls), [Probe, Title, Main, SubAgent]);
}

fn ended(mut call: Call, finish_reason: &str) -> Call {
    call.choices.iter_mut().for_each(|choice| choice.finish_reason = Some(finish_reason.to_owned()));
    call
}

#[test]
fn the_conversation_that_goes_on_is_main_and_the_question_before_it_is_not() {
    let after = |first: Call| {
        [
            first,
            fresh(call(1, &[5], &[&[6]]), BranchCause::SubAgent),
            call(2, &[5, 6, 7], &[&[8]]),
            fresh(call(3, &[9], &[&[10]]), BranchCause::SubAgent),
        ]
    };
    let calls = after(ended(call(0, &[1], &[&[2]]), "stop"));
    assert_eq!(of(&calls), [SubAgent, Main, Main, SubAgent]);
    let forest = Forest::build(&calls);
    let roles = roles(&forest);
    let causes: Vec<_> = forest.branches().iter().map(|branch| cause_of(branch, &roles)).collect();
    assert_eq!(causes, [BranchCause::FirstCall, BranchCause::FirstCall, BranchCause::SubAgent]);
    // The main conversation waits for a tool, and the sub-agent is that tool.
    assert_eq!(of(&after(ended(call(0, &[1], &[&[2]]), "tool_calls"))), [Main, SubAgent, SubAgent, SubAgent]);
    let goes_on =
        [&after(ended(call(0, &[1], &[&[2]]), "stop"))[..], &[call(4, &[1, 2, 3], &[&[4]])]].concat();
    assert_eq!(of(&goes_on), [Main, SubAgent, SubAgent, SubAgent, Main]);
    let alone = [ended(call(0, &[1], &[&[2]]), "stop"), fresh(call(1, &[5], &[&[6]]), BranchCause::SubAgent)];
    assert_eq!(of(&alone), [Main, SubAgent]);
}

const SUMMARY: [u32; 16] = [30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45];

fn compacted(role_of_work: Option<BranchCause>) -> Vec<Call> {
    let work = call(1, &[10], &[&[11]]);
    let asked = [&[10, 11, 12], &SUMMARY[..]].concat();
    vec![
        ended(call(0, &[1], &[&[2]]), "tool_calls"),
        role_of_work.map_or(work.clone(), |cause| fresh(work, cause)),
        call(2, &[10, 11, 12], &[&SUMMARY]),
        call(3, &[&asked[..], &[13]].concat(), &[&[14]]),
        // The summary lacks its first and last tokens and has other words around it.
        fresh(call(4, &[&[50, 51], &SUMMARY[2..15], &[52]].concat(), &[&[53]]), BranchCause::Compaction),
        rendered(call(5, &[50, 54], &[&[55]]), 4),
    ]
}

#[test]
fn who_wrote_what_a_compacted_conversation_begins_with_compacted_it() {
    assert_eq!(of(&compacted(None)), [Main, Main, Compaction, Main, Main, Main]);
}

#[test]
fn a_sub_agent_that_compacts_stays_one() {
    let roles = of(&compacted(Some(BranchCause::SubAgent)));
    assert_eq!(roles, [Main, SubAgent, Compaction, SubAgent, SubAgent, SubAgent]);
}

#[test]
fn an_absent_summary_was_written_by_no_call() {
    let mut calls = compacted(None);
    calls[4].prompt_token_ids = call(4, &[50, 51, 52], &[]).prompt_token_ids;
    assert!(!of(&calls).contains(&Compaction));
    // A summary that ended only later does not count either.
    let mut calls = compacted(None);
    calls[2].ended_at = jiff::Timestamp::MAX;
    assert!(!of(&calls).contains(&Compaction));
}

#[test]
fn a_rule_has_the_first_word() {
    let mut calls = compacted(Some(BranchCause::SubAgent));
    calls[1].role = Probe;
    calls[2].role = Title;
    assert_eq!(of(&calls)[..3], [Main, Probe, Title]);
}

proptest! {
    #[test]
    fn every_answer_has_a_role_whatever_the_order(
        (calls, shuffled) in trial().prop_flat_map(|calls| (Just(calls.clone()), Just(calls).prop_shuffle())),
    ) {
        prop_assert_eq!(of(&calls), of(&shuffled));
        prop_assert_eq!(of(&calls).len(), Forest::build(&calls).nodes().len());
    }
}
