//! Conversations that outgrow the model's context.

use std::time::Duration;

use rolltap_agent::{Role, StopReason, Summarize};
use rolltap_testing::limit;

use crate::harness::{run_in, shell, typing};
use crate::scripted::{Call, Kind, Reply, scripted};
use Kind::{Answers, Brief, Questions, Summary, Work};

fn observe() -> Reply {
    Reply::Words(typing(&[""], false))
}

fn done() -> Reply {
    Reply::Words(typing(&[], true))
}

/// Returns the answer of a helper conversation.
fn help(kind: Kind) -> Reply {
    Reply::Words(format!("the {kind:?} of it"))
}

#[tokio::test]
async fn a_full_conversation_is_handed_over_in_three_steps() {
    let (_shell, terminal) = shell();
    let model = scripted(Some(100_000), 10, |call, before| match (call.kind, before) {
        (Work, 0 | 1) => observe(),
        (Work, 2) => Reply::TooLong,
        (Work, _) => done(),
        (kind, _) => help(kind),
    })
    .await;
    let report = run_in(model.settings.clone(), terminal).await.unwrap();
    assert_eq!((report.turns, report.stop, report.summaries), (4, StopReason::Completed, 1));
    assert_eq!(model.kinds(), [Work, Work, Work, Summary, Questions, Answers, Work, Work]);

    let calls = model.calls.lock().unwrap();
    let refused = &calls[2];
    // The summary is requested in place of the rejected question.
    assert_eq!(calls[3].messages[..4], refused.messages[..4]);
    assert!(calls[3].last().contains("Create hello.txt."));
    assert_eq!(calls[4].messages.len(), 1);
    assert!(calls[4].last().contains("the Summary of it") && calls[4].last().contains("Create hello.txt."));
    assert_eq!(calls[5].messages.len(), 7);
    assert_eq!(calls[5].messages[5].content, "the Summary of it");
    assert!(calls[5].last().contains("the Questions of it"));

    let Call { messages, .. } = &calls[6];
    let roles: Vec<_> = messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User]);
    let first = &messages[0].content;
    assert!(first.starts_with(calls[0].last().trim_end()) && first.ends_with(calls[4].last()), "{first}");
    assert_eq!(messages[1].content, "the Questions of it");
    assert!(calls[6].last().contains("the Answers of it"));
    assert_eq!(calls[7].messages[..3], messages[..], "the work continues from there");
    // There are four turns and three helpers, and each message has ten tokens.
    let sent: usize =
        calls.iter().filter(|call| call.messages != refused.messages).map(|call| call.messages.len()).sum();
    assert_eq!(report.prompt_tokens, 10 * sent as u64);
}

#[tokio::test]
async fn a_conversation_is_handed_over_before_it_is_full() {
    let (_shell, terminal) = shell();
    // A message has 1000 tokens: five messages and an answer leave less than a quarter of the context.
    let model = scripted(Some(6_000), 1_000, |call, before| match (call.kind, before) {
        (Work, 0..=3) => observe(),
        (Work, _) => done(),
        (kind, _) => help(kind),
    })
    .await;
    let report = run_in(model.settings.clone(), terminal).await.unwrap();
    assert_eq!(report.stop, StopReason::Completed);
    assert_eq!(model.kinds()[..6], [Work, Work, Work, Summary, Questions, Answers]);
}

#[tokio::test]
async fn the_configured_context_takes_precedence_over_the_servers() {
    let (_shell, terminal) = shell();
    let script = |call: &Call, before| match (call.kind, before) {
        (Work, 0..=4) => observe(),
        (Work, _) => done(),
        (kind, _) => help(kind),
    };
    let model = scripted(Some(6_000), 1_000, script).await;
    let mut settings = model.settings.clone();
    settings.summarize = Some(Summarize { context_length: Some(1 << 20), when_free_below: None });
    assert_eq!(run_in(settings, terminal).await.unwrap().summaries, 0);
}

#[tokio::test]
async fn a_summary_that_fails_ahead_changes_nothing() {
    let (_shell, terminal) = shell();
    let model = scripted(Some(5_000), 1_000, |call, before| match (call.kind, before) {
        (Work, 0 | 1) => observe(),
        (Work, _) => done(),
        _ => Reply::CutOff("the Summ".into()),
    })
    .await;
    let report = run_in(model.settings.clone(), terminal).await.unwrap();
    assert_eq!((report.turns, report.stop, report.summaries), (4, StopReason::Completed, 0));
    let calls = model.calls.lock().unwrap();
    assert_eq!(calls.iter().rfind(|call| call.kind == Work).unwrap().messages.len(), 7);
}

#[tokio::test]
async fn the_latest_exchanges_are_dropped_until_there_is_room() {
    let (_shell, terminal) = shell();
    let model = scripted(None, 3_000, |call, before| match (call.kind, before) {
        (Work, 0..=3) => observe(),
        (Work, 4) => Reply::TooLong,
        (Work, _) => done(),
        (kind, _) => help(kind),
    })
    .await;
    run_in(model.settings.clone(), terminal).await.unwrap();
    let calls = model.calls.lock().unwrap();
    let summary = calls.iter().find(|call| call.kind == Summary).unwrap();
    // Four exchanges take 21 000 tokens. The last of them is dropped, because 4000 tokens must be free.
    assert_eq!(summary.messages.len(), 2 * 3 + 1);
}

#[tokio::test]
async fn without_room_for_a_summary_the_screen_has_to_do() {
    for brief_fits in [true, false] {
        let (_shell, terminal) = shell();
        terminal.send_keys("echo on-the-screen\n").await.unwrap();
        terminal.settled(Duration::from_millis(200), limit(60)).await;
        let model = scripted(None, 10, move |call, before| match (call.kind, before) {
            (Work, 0) => observe(),
            (Work, 1) | (Summary, _) => Reply::TooLong,
            (Work, _) => done(),
            (Brief, _) if !brief_fits => Reply::TooLong,
            (kind, _) => help(kind),
        })
        .await;
        let report = run_in(model.settings.clone(), terminal).await.unwrap();
        assert_eq!((report.stop, report.summaries), (StopReason::Completed, 0));
        assert_eq!(model.kinds(), [Work, Work, Summary, Brief, Work, Work]);
        let calls = model.calls.lock().unwrap();
        assert!(calls[3].last().contains("on-the-screen") && calls[3].messages.len() == 1);
        let after = calls[4].last();
        assert!(after.contains("Create hello.txt."), "{after}");
        assert!(after.contains(if brief_fits { "the Brief of it" } else { "on-the-screen" }), "{after}");
        assert_eq!(calls[4].messages.len(), 3, "the first exchange stays");
    }
}

#[tokio::test]
async fn a_model_that_never_has_room_ends_the_run() {
    let (_shell, terminal) = shell();
    let model = scripted(None, 10, |call, before| match (call.kind, before) {
        (Work, 0) => observe(),
        _ => Reply::TooLong,
    })
    .await;
    let report = run_in(model.settings.clone(), terminal).await.unwrap();
    assert_eq!((report.turns, report.stop), (1, StopReason::ContextExceeded));
    assert!(model.kinds().len() < 20, "{:?}", model.kinds());
}

#[tokio::test]
async fn a_model_that_finds_room_again_goes_on() {
    let (_shell, terminal) = shell();
    let model = scripted(None, 10, |call, before| match (call.kind, before) {
        (Work, 1 | 2) | (Summary | Brief, _) => Reply::TooLong,
        (Work, 0) => observe(),
        (Work, _) => done(),
        (kind, _) => help(kind),
    })
    .await;
    let report = run_in(model.settings.clone(), terminal).await.unwrap();
    assert_eq!((report.turns, report.stop), (3, StopReason::Completed));
    let calls = model.calls.lock().unwrap();
    assert!(calls[5].last().starts_with("The conversation grew too long and its end was dropped"));
}

#[tokio::test]
async fn where_nothing_is_summed_up_a_full_context_ends_the_run() {
    let (_shell, terminal) = shell();
    let model =
        scripted(Some(10), 1_000, |_, before| if before == 0 { observe() } else { Reply::TooLong }).await;
    let mut settings = model.settings.clone();
    settings.summarize = None;
    let report = run_in(settings, terminal).await.unwrap();
    assert_eq!((report.turns, report.stop), (1, StopReason::ContextExceeded));
    assert_eq!(model.kinds(), [Work, Work]);
}
