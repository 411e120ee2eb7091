//! The record that a recorder makes from the parts of an answer.

use std::sync::LazyLock;

use super::*;

/// Its patterns are compiled once for all cases of the property tests.
static REDACTION: LazyLock<Arc<Redaction>> = LazyLock::new(Arc::default);

impl CallStart {
    /// The start of a chat call of the trial `t`.
    pub(crate) fn of_test() -> Self {
        Self {
            call_id: CallId::generate(),
            trial_id: TrialId::new("t").unwrap(),
            dialect: Dialect::ChatCompletions,
            started_at: Timestamp::UNIX_EPOCH,
            prompts: Arc::default(),
            redaction: Arc::clone(&REDACTION),
        }
    }
}

impl CallFacts {
    /// The facts of a chat request with one prompt that asks for tokens.
    pub(crate) fn of_test(choices: u32) -> Self {
        Self {
            dialect: Dialect::ChatCompletions,
            model: "tiny".to_owned(),
            sampling: Sampling::default(),
            has_media: false,
            choices,
            prompts: 1,
            asks_for_tokens: true,
        }
    }
}

fn recorder() -> Recorder {
    let mut recorder = Recorder::begin(CallStart::of_test());
    recorder.requested(CallFacts::of_test(1), CallRole::default());
    recorder
}

fn finished(prompt: &str, ids: &str, logprobs: &str) -> Call {
    let mut recorder = recorder();
    recorder.prompt(prompt);
    let mut read = lists::LogprobList::new();
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
