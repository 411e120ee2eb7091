use std::sync::Arc;

use jiff::Timestamp;
use rolltap_rollout::call::{CallStatus, Flaw};
use rolltap_rollout::export::format::Format;
use rolltap_rollout::ids::{CallId, TrialId};
use rolltap_testing::{PROMPT, rollout_row, write_jsonl};
use serde_json::{Value, json};

use super::*;
use crate::collection::Collection;
use crate::figures::exported::Exported;

/// Returns a trial without a group, of one branch with three sampled tokens.
fn content(change: impl FnOnce(&mut Value)) -> TrialContent {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.jsonl");
    let mut row = rollout_row("one", "task", Some(1.0), 3);
    row["group_id"] = Value::Null;
    row["group_size"] = Value::Null;
    change(&mut row);
    write_jsonl(&file, &[row]);
    Collection::open(&[file]).unwrap().jobs()[0].content().trial("one").unwrap()
}

/// Returns the reason of each run in an export of complete rows.
fn reasons(content: TrialContent) -> Vec<(Range<usize>, Option<String>)> {
    let group = [content];
    let exported = Exported::of(Format::Jsonl, "one", &group);
    let trial = exported.as_ref().map(|exported| &exported.trial);
    let branch = MaskedBranch::of(&group[0], trial, &group[0].rows[0]);
    let runs = branch.runs(0..usize::MAX).into_iter();
    runs.map(|run| (run.tokens, run.masked.map(|masked| masked.to_string()))).collect()
}

/// The reasons of a trial whose prompt is followed by one run with this reason.
fn after_prompt(reason: &str) -> Vec<(Range<usize>, Option<String>)> {
    vec![(0..PROMPT, Some("prompt".to_owned())), (PROMPT..PROMPT + 3, Some(reason.to_owned()))]
}

fn untrainable(row: &mut Value) {
    for mask in ["trainable_mask", "loss_mask"] {
        row[mask] = json!([0, 0, 0, 0, 0]);
    }
}

#[test]
fn trained_tokens_have_no_reason() {
    let expected = [(0..PROMPT, Some("prompt".to_owned())), (PROMPT..PROMPT + 3, None)];
    assert_eq!(reasons(content(|_| {})), expected);
}

#[test]
fn tokens_of_constrained_calls_and_of_failed_trials_are_masked_by_the_export() {
    let constrained = content(|row| row["calls"][0]["constrained"] = true.into());
    assert_eq!(reasons(constrained), after_prompt("constrained call (--train-constrained trains it)"));
    let failed = content(|row| {
        row["reward_valid"] = false.into();
        row["failure_cause"] = "AgentTimeoutError".into();
    });
    // An export leaves out a trial without a group in which nothing is trained.
    let reason =
        "left out: 1 trial of groups in which nothing is trained: each trial failed or sampled nothing";
    assert_eq!(reasons(failed), after_prompt(reason));
}

#[test]
fn tokens_that_no_export_trains_have_the_reason_of_the_captures() {
    let of_title = || {
        content(|row| {
            untrainable(row);
            row["calls"][0]["role"] = "title".into();
        })
    };
    assert_eq!(reasons(of_title()), after_prompt("sampled, but not trainable (call of role title)"));
    let mut known = of_title();
    known.export.training = Some(TrainingPolicy::default());
    assert_eq!(reasons(known), after_prompt("calls of role title are not trained in this trial"));

    let mut flawed = content(untrainable);
    let id = CallId::new("call-of-one").unwrap();
    let mut call = Call::begun(id, TrialId::new("one").unwrap(), 0, Timestamp::UNIX_EPOCH);
    call.status = CallStatus::Complete;
    call.flaws = vec![Flaw::MissingLogprobs];
    flawed.calls = vec![(Arc::new(call), None)];
    assert_eq!(reasons(flawed), after_prompt("call that cannot be trained: complete, missing_logprobs"));
}
