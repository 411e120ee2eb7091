//! The record that a recorder makes from the parts of an answer.

use super::*;

fn recorder() -> Recorder {
    let mut recorder = Recorder::new(
        CallId::generate(),
        TrialId::new("t").unwrap(),
        3,
        Timestamp::UNIX_EPOCH,
        Arc::default(),
    );
    recorder.asked(CallFacts {
        dialect: Dialect::ChatCompletions,
        model: "m".into(),
        sampling: Sampling::default(),
        has_media: false,
        choices: 1,
        prompts: 1,
        asks_for_tokens: true,
    });
    recorder
}

fn finished(prompt: &str, ids: &str, logprobs: &str) -> Call {
    let mut recorder = recorder();
    recorder.prompt(prompt);
    let mut read = Vec::new();
    lists::read_logprobs(logprobs, &mut read).unwrap();
    recorder.choice(ChoicePart {
        token_ids: Some(ids),
        logprobs: &read,
        finish_reason: Some("stop"),
        ..ChoicePart::default()
    });
    recorder.finish_one(CallStatus::Complete, None)
}

#[test]
fn a_whole_answer_has_no_flaw() {
    let call = finished("[1,2]", "[3]", r#"{"content":[{"token":"x","logprob":-7.630593299865723}]}"#);
    assert_eq!(call.flaws, []);
    assert_eq!(call.choices[0].logprobs[0].map(Logprob::get), Some(-7.6305933f32));
    assert!(call.is_trainable() && call.first_token_at.is_some());
}

#[test]
fn what_is_missing_is_named_and_not_trained() {
    let good = r#"{"content":[{"logprob":-1.0}]}"#;
    for (prompt, ids, logprobs, flaw) in [
        ("[]", "[3]", good, Flaw::MissingPromptIds),
        ("[-1]", "[3]", good, Flaw::Unreadable),
        ("[1]", "[]", good, Flaw::MissingTokenIds),
        ("[1]", "[3]", r#"{"content":null}"#, Flaw::MissingLogprobs),
        ("[1]", "[3,4]", good, Flaw::LengthMismatch),
        ("[1]", "[\"3\"]", good, Flaw::Unreadable),
    ] {
        let call = finished(prompt, ids, logprobs);
        assert!(call.flaws.contains(&flaw), "{flaw:?} not in {:?}", call.flaws);
        assert!(!call.is_trainable(), "{flaw:?}");
    }
}

#[test]
fn a_logprob_that_is_none_keeps_its_place() {
    let call = finished("[1]", "[3,4]", r#"{"content":[{"logprob":0.5},{"logprob":-0.5}]}"#);
    assert_eq!(call.flaws, [Flaw::InvalidLogprob]);
    assert_eq!(call.choices[0].logprobs.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_choice_that_never_came_is_missed() {
    let mut recorder = recorder();
    recorder.expected_choices = 2;
    recorder.prompt("[1]");
    assert!(recorder.finish_one(CallStatus::Complete, None).flaws.contains(&Flaw::MissingChoice));
}
