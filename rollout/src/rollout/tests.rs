use proptest::prelude::*;

use super::*;
use crate::call::{Flaw, VersionSpan};
use crate::forest::tests::{call, trial};
use crate::training::Training;

fn facts() -> TrialFacts {
    TrialFacts {
        trial_id: TrialId::new("t").unwrap(),
        task_id: TaskId::new("org/task").unwrap(),
        group_id: None,
        group_size: None,
        sample_index: 0,
        attempt: 0,
        agent: None,
        environment: None,
        model: None,
        logprobs_mode: "raw_logprobs".into(),
        tokenizer_hash: None,
        vocab_size: None,
        training: TrainingPolicy::default(),
    }
}

fn masks(row: &RolloutRow) -> [String; 3] {
    [&row.sampled_mask, &row.trainable_mask, &row.loss_mask]
        .map(|mask| mask.iter().map(|bit| char::from(b'0' + bit)).collect())
}

#[test]
fn a_branch_holds_every_turn_and_masks_what_was_sampled() {
    let calls = [call(0, &[1, 2], &[&[3]]), call(1, &[1, 2, 3, 4], &[&[5, 6]])];
    let [row] = &rows(&facts(), &Reward::default(), &calls)[..] else { panic!("one branch") };
    assert_eq!(row.token_ids, [1, 2, 3, 4, 5, 6]);
    assert_eq!(masks(row), ["001011", "001011", "001011"]);
    assert_eq!(row.logprobs, [0.0, 0.0, -3.0, 0.0, -5.0, -6.0]);
    assert_eq!(row.token_version, [-1, -1, 0, -1, 0, 0]);
    assert_eq!(row.prompt_len, 2);
    let spans: Vec<_> =
        row.calls.iter().map(|span| (span.start, span.end, span.parent_call_id.as_deref())).collect();
    assert_eq!(spans, [(2, 3, None), (4, 6, Some("c0000"))]);
}

#[test]
fn tokens_bear_the_version_that_sampled_them() {
    let mut straddling = call(0, &[1], &[&[2, 3, 4]]);
    straddling.policy_version = 2;
    straddling.choices[0].versions = vec![VersionSpan { start: 1, version: 3 }];
    straddling.version_labels = BTreeMap::from([(2, "step-2".into()), (3, "step-3".into())]);
    let [row] = &rows(&facts(), &Reward::default(), &[straddling])[..] else { panic!("one branch") };
    assert_eq!(row.token_version, [-1, 2, 3, 3]);
    assert_eq!(row.calls[0].version, 2);
    let labels: Vec<_> = row.version_labels.iter().map(|(version, label)| (&**version, &**label)).collect();
    assert_eq!(labels, [("2", "step-2"), ("3", "step-3")]);
}

#[test]
fn a_call_from_before_policy_versions_is_read() {
    let old = serde_json::to_value(call(0, &[1], &[&[2]])).unwrap();
    for key in ["straddles_versions", "version_labels", "upstream"] {
        assert!(old.get(key).is_none(), "{key} is written only with a value");
    }
    let read: Call = serde_json::from_value(old).unwrap();
    assert_eq!(read, call(0, &[1], &[&[2]]));
}

#[test]
fn a_shared_token_is_owned_by_the_branch_of_lowest_index() {
    let calls = [call(0, &[1], &[&[2]]), call(1, &[1, 2, 3], &[&[4]]), call(2, &[1, 2, 5], &[&[6]])];
    let rows = rows(&facts(), &Reward::default(), &calls);
    assert_eq!(masks(&rows[0]), ["0101", "0101", "0101"]);
    assert_eq!(masks(&rows[1]), ["0101", "0101", "0001"]);
}

#[test]
fn what_cannot_be_trusted_is_sampled_but_not_trained() {
    let mut unfinished = call(0, &[1], &[&[2]]);
    unfinished.status = CallStatus::Cancelled;
    let mut flawed = call(0, &[1], &[&[2]]);
    flawed.flaws.push(Flaw::LengthMismatch);
    for call in [unfinished, flawed] {
        assert_eq!(masks(&rows(&facts(), &Reward::default(), &[call])[0]), ["01", "00", "00"]);
    }
    let mut without_a_logprob = call(0, &[1], &[&[2, 3]]);
    without_a_logprob.choices[0].logprobs[0] = None;
    without_a_logprob.flaws.push(Flaw::InvalidLogprob);
    let row = &rows(&facts(), &Reward::default(), &[without_a_logprob])[0];
    assert_eq!(
        (masks(row), &row.logprobs),
        (["011".into(), "001".into(), "001".into()], &vec![0.0, 0.0, -3.0])
    );
}

#[test]
fn ambiguous_parentage_is_masked() {
    let calls = [call(0, &[1], &[&[2]]), call(1, &[1], &[&[2]]), call(2, &[1, 2, 3], &[&[4]])];
    let rows = rows(&facts(), &Reward::default(), &calls);
    assert_eq!(masks(&rows[0]), ["0101", "0100", "0100"]);
    assert_eq!(masks(&rows[1]), ["01", "01", "01"]);
}

#[test]
fn a_missing_reward_is_none_with_the_cause_of_the_failure() {
    let mut cut = call(0, &[1], &[&[2]]);
    cut.choices[0].finish_reason = Some("length".into());
    let row = &rows(
        &facts(),
        &Reward { failure_cause: Some("AgentTimeoutError".into()), ..Reward::default() },
        &[cut],
    )[0];
    assert_eq!(
        (row.reward, row.reward_valid, row.failure_cause.as_deref()),
        (None, false, Some("AgentTimeoutError"))
    );
    assert_eq!(
        (row.status.as_str(), row.is_truncated, row.stop_reason.as_deref()),
        ("truncated", true, Some("length"))
    );
}

#[test]
fn a_role_that_is_masked_is_sampled_and_not_trained() {
    let mut calls = [
        call(0, &[1], &[&[2]]),
        call(1, &[1, 2, 3], &[&[4]]),
        call(2, &[1, 2, 5], &[&[6]]),
        call(3, &[9], &[&[8]]),
    ];
    calls[0].role = CallRole::Title;
    calls[3].role = CallRole::Probe;
    let made = rows(&facts(), &Reward::default(), &calls);
    assert_eq!(masks(&made[0]), ["0101", "0001", "0001"]);
    assert_eq!(masks(&made[1]), ["0101", "0001", "0001"]);
    assert_eq!(masks(&made[2]), ["01", "00", "00"]);
    assert_eq!(made[0].calls.iter().map(|span| &*span.role).collect::<Vec<_>>(), ["title", "main"]);

    let named = BTreeMap::from([(CallRole::Title, Training::Train), (CallRole::Main, Training::Mask)]);
    let facts = TrialFacts { training: TrainingPolicy::default().with(&named), ..facts() };
    let made = rows(&facts, &Reward::default(), &calls);
    assert_eq!(masks(&made[0]), ["0101", "0100", "0100"]);
    assert_eq!(masks(&made[1]), ["0101", "0100", "0000"], "the shared token is trained once");
}

/// Generates a trial whose calls have any role, status and flaws, and a policy for it.
fn trial_with_roles() -> impl Strategy<Value = (Vec<Call>, TrainingPolicy)> {
    let facts = (0..CallRole::ALL.len(), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let training = prop::sample::select(vec![Training::Train, Training::Mask]);
    let roles = prop::sample::select(CallRole::ALL.to_vec());
    let named = prop::collection::btree_map(roles, training, 0..5);
    (trial(), prop::collection::vec(facts, 12), named).prop_map(|(mut calls, facts, named)| {
        for (call, (role, is_cancelled, is_flawed)) in calls.iter_mut().zip(facts) {
            call.role = CallRole::ALL[role];
            if is_cancelled {
                call.status = CallStatus::Cancelled;
            }
            if is_flawed {
                call.flaws.push(Flaw::MissingChoice);
            }
        }
        (calls, TrainingPolicy::default().with(&named))
    })
}

proptest! {
    #[test]
    fn a_sampled_token_is_trained_once_if_at_all((calls, training) in trial_with_roles()) {
        let facts = TrialFacts { training, ..facts() };
        let rows = rows(&facts, &Reward::default(), &calls);
        let forest = Forest::build(&calls);
        let roles = roles(&forest);
        for (node, role) in forest.nodes().iter().zip(roles) {
            let is_trainable = node.call.is_trainable() && !node.is_ambiguous && training.trains(role);
            let of_node: Vec<_> = rows
                .iter()
                .filter(|row| {
                    row.calls.iter().any(|span| {
                        span.call_id == node.call.call_id.as_str() && span.choice_index == node.choice.index as i32
                    })
                })
                .collect();
            prop_assert!(!of_node.is_empty());
            for at in node.start()..node.end() {
                prop_assert!(of_node.iter().all(|row| row.sampled_mask[at] == 1));
                prop_assert!(of_node.iter().all(|row| row.trainable_mask[at] == u8::from(is_trainable)));
                // The first of these rows has the lowest index.
                let loss: Vec<_> = of_node.iter().map(|row| row.loss_mask[at]).collect();
                prop_assert_eq!(loss[0], u8::from(is_trainable));
                prop_assert!(loss[1..].iter().all(|&loss| loss == 0));
            }
        }
    }

    #[test]
    fn rows_of_any_trial_keep_every_invariant((calls, training) in trial_with_roles()) {
        let facts = || TrialFacts { training, ..facts() };
        let rows = rows(&facts(), &Reward::default(), &calls);
        let captured = crate::check::Captured::new(&calls).training(training);
        let breaches = crate::check::check_trial(&facts().trial_id, &rows, Some(&captured), crate::check::Options::default());
        prop_assert!(breaches.is_empty(), "{:?}", breaches);
    }
}
