use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use rolltap_proxy::store::{CallNote, CallNoteKind};
use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{Call, CallStatus, Choice};
use rolltap_rollout::continuation::{AnswerRef, Class, Continuation};
use rolltap_rollout::ids::{CallId, TaskId, TrialId};
use rolltap_rollout::rollout::{Reward, TrialFacts, rows};
use rolltap_rollout::token::{Logprob, TokenId};
use rolltap_rollout::training::TrainingPolicy;

use super::*;
use crate::collection::{ExportFacts, TrialEntry, TrialFiles};
use crate::page::tokens;

fn tokens_of(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().map(|id| TokenId::try_from(*id).unwrap()).collect()
}

/// Returns a complete call, which ends at this second.
fn call(second: i64, prompt: &[u32], answer: &[u32], continuation: Continuation) -> Call {
    let at = Timestamp::from_second(second).unwrap();
    let choice = Choice {
        token_ids: tokens_of(answer),
        logprobs: vec![Logprob::try_from(-0.5).ok(); answer.len()],
        finish_reason: Some("stop".to_owned()),
        ..Choice::default()
    };
    Call {
        status: CallStatus::Complete,
        prompt_token_ids: tokens_of(prompt).into_iter().collect(),
        choices: vec![choice],
        continuation: Some(continuation),
        ..Call::begun(CallId::generate(), TrialId::new("one").unwrap(), 0, at)
    }
}

fn answer_of(call: &Call) -> AnswerRef {
    AnswerRef { call_id: call.call_id.clone(), choice: 0 }
}

/// Returns a trial of three calls. The second splices the answer of the first. The third continues the second, but the
/// template drops token 4 and adds token 9.
fn content() -> TrialContent {
    let first = call(0, &[1, 2, 3], &[4, 5], Continuation::Fresh { cause: BranchCause::FirstCall });
    let spliced =
        Continuation::Spliced { parent: answer_of(&first), class: Class::Respelled, is_edited: false };
    let second = call(1, &[1, 2, 3, 4, 5, 6], &[7], spliced);
    let cause = BranchCause::TemplateRewroteHistory;
    let rendered =
        Continuation::Rendered { parent: answer_of(&second), cause, class: Some(Class::Rewritten) };
    let third = call(2, &[1, 2, 3, 5, 6, 7, 9], &[8], rendered);
    let facts = TrialFacts {
        trial_id: first.trial_id.clone(),
        task_id: TaskId::new("task").unwrap(),
        group_id: None,
        group_size: None,
        sample_index: 0,
        attempt: 0,
        agent: None,
        environment: None,
        model: None,
        logprobs_mode: "raw_logprobs".to_owned(),
        tokenizer_hash: None,
        vocab_size: None,
        training: TrainingPolicy::default(),
    };
    let calls = [first, second, third];
    let entry = TrialEntry {
        id: "one".to_owned(),
        task: "task".to_owned(),
        group: None,
        sample: 0,
        attempt: 0,
        is_superseded: false,
        is_open: false,
        agent: None,
        reward: None,
        opened_at: None,
        sealed_at: None,
        calls: None,
        incomplete_calls: None,
        sampled_tokens: None,
        causes: BTreeMap::new(),
    };
    TrialContent {
        entry,
        rows: rows(&facts, &Reward::default(), &calls),
        calls: calls.into_iter().map(|call| (Arc::new(call), None)).collect(),
        version_changes: Vec::new(),
        pauses: Vec::new(),
        notes: Vec::new(),
        recomputed: Vec::new(),
        export: ExportFacts::default(),
        files: TrialFiles::default(),
        problems: Vec::new(),
    }
}

#[test]
fn the_table_of_calls_tells_a_splice_from_a_rendering() {
    let content = content();
    let made = |branch: usize| -> Vec<String> {
        let sources = content.rows[branch].calls.iter().map(|span| PromptSource::of(&content, span));
        sources.map(|made| source(made.as_ref()).into_string()).collect()
    };
    let expected = [
        "rendered: new conversation (first_call)",
        "spliced 5 tokens; rendered by the template, the answer is respelled",
    ];
    assert_eq!(made(0), expected);
    let expected =
        "rendered again: template_rewrote_history; rendered by the template, the answer is rewritten";
    assert_eq!(made(1), [expected]);
}

#[test]
fn a_spliced_prompt_has_the_result_of_its_audit() {
    let mut content = content();
    let call_id = content.calls[1].0.call_id.clone();
    for (is_equal, words) in [(true, "renders the same ids"), (false, "renders other ids")] {
        let kind = CallNoteKind::Audited { is_equal };
        content.notes = vec![CallNote { call_id: call_id.clone(), kind, at: Timestamp::UNIX_EPOCH }];
        let made = source(PromptSource::of(&content, &content.rows[0].calls[1]).as_ref()).into_string();
        assert!(made.contains(&format!("audited: the server {words}")), "{made}");
        let window = tokens::window(&content, &content.rows[0], 0, &TokenTexts(None), |_| String::new());
        let mark = format!("data-audit=\"{}\"", if is_equal { "equal" } else { "different" });
        // The prompt and the answer of the first call are spliced into the audited prompt.
        assert_eq!(window.into_string().matches(&mark).count(), 2);
    }
}

#[test]
fn tokens_that_the_next_prompt_has_as_captured_are_marked() {
    let content = content();
    let window = tokens::window(&content, &content.rows[0], 0, &TokenTexts(None), |_| String::new());
    let window = window.into_string();
    // The prompt and the answer of the first call are spliced. The tokens after them have no next prompt.
    assert_eq!(window.matches("class=\"run prompt spliced\"").count(), 1, "{window}");
    assert_eq!(window.matches("class=\"run trained spliced\"").count(), 1, "{window}");
    assert_eq!(window.matches("data-spliced=\"respelled\"").count(), 2, "{window}");
    assert_eq!(window.matches("class=\"run ").count(), 4, "{window}");
}

#[test]
fn a_prompt_that_departs_from_its_conversation_is_shown_as_a_difference() {
    let content = content();
    assert_eq!(rewritten(&content, &content.rows[0], &TokenTexts(None)).into_string(), "");
    let shown = rewritten(&content, &content.rows[1], &TokenTexts(None)).into_string();
    assert!(shown.contains("(template_rewrote_history): 3 equal tokens"), "{shown}");
    assert!(
        shown.contains("3 </i><del><i data-i=\"4\" title=\"id 4\">4 </i></del><i data-i=\"5\""),
        "{shown}"
    );
    assert!(shown.contains("<ins><i data-i=\"9\" title=\"id 9\">9 </i></ins>"), "{shown}");
    assert!(shown.contains("− 4\n+ 9\n"), "{shown}");
}
