//! Records the answer of a completion, and removes the fields that only the proxy requested. The rules come from a
//! comparison of vLLM's answers with and without the two keys.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::EventAction;
use crate::recorder::lists::{LogprobList, read_logprobs};
use crate::recorder::{ChoicePart, Recorder};
use crate::wire::json_edit::Splices;

/// The fields that the agent itself requested, which remain in the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompletionAnswerOptions {
    pub(crate) logprobs: bool,
    pub(crate) prompt_logprobs: bool,
    pub(crate) token_ids: bool,
    /// The agent's name of the model, if upstream was asked for another name.
    pub(crate) renamed: Option<Box<str>>,
    /// Whether the answer begins with the prompt.
    pub(crate) echo: bool,
    /// The number of answers per prompt (`n`).
    pub(crate) samples: u32,
}

/// A whole answer, or one chunk of a stream.
#[derive(Deserialize)]
struct CompletionAnswer<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<Vec<AnswerChoice<'a>>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    usage: Option<CompletionUsage>,
}

#[derive(Deserialize)]
struct CompletionUsage {
    #[serde(default)]
    completion_tokens: u64,
}

#[derive(Deserialize)]
struct AnswerChoice<'a> {
    #[serde(default)]
    index: u32,
    #[serde(borrow, default)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    token_ids: Option<&'a RawValue>,
    /// In a stream, this is part of the chunk with the first token of each answer.
    #[serde(borrow, default)]
    prompt_token_ids: Option<&'a RawValue>,
    /// vLLM adds these if a request has both `echo` and `logprobs`.
    #[serde(borrow, default)]
    prompt_logprobs: Option<&'a RawValue>,
}

/// Records a whole answer and returns its form for the agent, or `None` if it is forwarded unchanged.
pub(crate) fn whole(body: &str, asked: &CompletionAnswerOptions, recorder: &mut Recorder) -> Option<Vec<u8>> {
    let Ok(answer) = serde_json::from_str::<CompletionAnswer<'_>>(body) else {
        recorder.unreadable();
        return None;
    };
    record(&answer, asked, recorder);
    without_ours(body, &answer, asked).edited().map(String::into_bytes)
}

/// Records one event of a stream, and decides what the agent gets of the event.
pub(crate) fn event<'d>(
    data: &'d str,
    asked: &CompletionAnswerOptions,
    recorder: &mut Recorder,
) -> EventAction<'d> {
    if data == "[DONE]" {
        return EventAction::Last;
    }
    let Ok(chunk) = serde_json::from_str::<CompletionAnswer<'_>>(data) else {
        recorder.unreadable();
        return EventAction::AsIs;
    };
    record(&chunk, asked, recorder);
    EventAction::edited(without_ours(data, &chunk, asked))
}

fn record(answer: &CompletionAnswer<'_>, asked: &CompletionAnswerOptions, recorder: &mut Recorder) {
    if let Some(error) = answer.error {
        recorder.upstream_error(error.get());
    }
    let without_ids = answer.choices.iter().flatten().filter(|choice| choice.token_ids.is_none()).count();
    recorder
        .tokens_without_ids(without_ids as u64, answer.usage.as_ref().map(|usage| usage.completion_tokens));
    let mut logprobs = LogprobList::new();
    for choice in answer.choices.iter().flatten() {
        // vLLM numbers the answers of a batch `prompt * n + sample`. `max` avoids a division by zero for an `n` of 0,
        // which vLLM rejects.
        let samples = asked.samples.max(1);
        let Some(of_prompt) = recorder.of_prompt((choice.index / samples) as usize) else {
            recorder.unreadable();
            continue;
        };
        // Each prompt of a batch is a separate call in the record, so each gets the model's name.
        if let Some(model) = answer.model {
            of_prompt.served_model(model.get());
        }
        if let Some(ids) = choice.prompt_token_ids {
            of_prompt.prompt(ids.get());
        }
        logprobs.clear();
        if choice.logprobs.is_some_and(|raw| read_logprobs(raw.get(), &mut logprobs).is_err()) {
            of_prompt.unreadable();
        }
        of_prompt.choice(ChoicePart {
            index: choice.index % samples,
            token_ids: choice.token_ids.map(RawValue::get),
            logprobs: &logprobs,
            finish_reason: choice.finish_reason.as_deref(),
            stop_reason: choice.stop_reason.map(RawValue::get),
            begins_with_prompt: asked.echo,
            message: None,
        });
    }
}

/// Removes the proxy's fields and restores the model's name.
fn without_ours<'d>(
    text: &'d str,
    answer: &CompletionAnswer<'_>,
    asked: &CompletionAnswerOptions,
) -> Splices<'d> {
    let mut splices = Splices::of(text);
    for choice in answer.choices.iter().flatten() {
        let ids = [choice.token_ids, choice.prompt_token_ids];
        let ours = [
            (!asked.token_ids, ids.as_slice()),
            (!asked.logprobs, &[choice.logprobs]),
            (!asked.logprobs && !asked.prompt_logprobs, &[choice.prompt_logprobs]),
        ];
        let to_go =
            ours.iter().filter(|(is_ours, _)| *is_ours).flat_map(|(_, values)| values.iter().flatten());
        // vLLM writes `null` for fields that were not requested.
        to_go.for_each(|value| splices.replace(value.get(), "null"));
    }
    if let (Some(model), Some(renamed)) = (answer.model, &asked.renamed) {
        splices.replace(model.get(), serde_json::Value::from(&**renamed).to_string());
    }
    splices
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rolltap_rollout::call::{Call, CallRole, CallStatus, Dialect};

    use super::*;
    use crate::recorder::{CallFacts, CallStart};

    const NOTHING: CompletionAnswerOptions = CompletionAnswerOptions {
        logprobs: false,
        prompt_logprobs: false,
        token_ids: false,
        renamed: None,
        echo: false,
        samples: 1,
    };

    fn recorder(prompts: usize, choices: u32) -> Recorder {
        let mut recorder = Recorder::begin(CallStart::of_test());
        let facts = CallFacts { dialect: Dialect::Completions, prompts, ..CallFacts::of_test(choices) };
        recorder.requested(facts, CallRole::default());
        recorder
    }

    fn logprobs(call: &Call, choice: usize) -> Vec<f32> {
        call.choices[choice].logprobs.iter().map(|logprob| logprob.unwrap().get()).collect()
    }

    #[test]
    fn each_prompt_of_a_batch_is_a_call() {
        let mut recorder = recorder(2, 2);
        let asked = CompletionAnswerOptions { samples: 2, ..NOTHING };
        for (index, prompt) in [(0, "[1]"), (1, "[1]"), (2, "[2]"), (3, "[2]")] {
            let chunk = format!(
                r#"{{"choices":[{{"index":{index},"text":"x","logprobs":{{"token_logprobs":[-0.{index}]}},"finish_reason":"stop","prompt_token_ids":{prompt},"token_ids":[1{index}]}}]}}"#
            );
            let EventAction::Edited(edited) = event(&chunk, &asked, &mut recorder) else {
                panic!("not edited")
            };
            let expected = format!(
                r#"{{"choices":[{{"index":{index},"text":"x","logprobs":null,"finish_reason":"stop","prompt_token_ids":null,"token_ids":null}}]}}"#
            );
            assert_eq!(edited.edited().unwrap(), expected);
        }
        let calls = recorder.finish(CallStatus::Complete, None);
        assert_eq!(calls.len(), 2);
        assert!(calls.iter().all(|call| call.flaws.is_empty() && call.choices.len() == 2));
        assert_ne!(calls[0].call_id, calls[1].call_id);
        assert_eq!(serde_json::to_string(&calls[1].prompt_token_ids).unwrap(), "[2]");
        assert_eq!(serde_json::to_string(&calls[1].choices[1].token_ids).unwrap(), "[13]");
    }

    #[test]
    fn echoed_prompts_are_no_samples() {
        let mut recorder = recorder(1, 1);
        let body = r#"{"choices":[{"index":0,"text":"abx","logprobs":{"token_logprobs":[null,-9.0,-0.5]},"finish_reason":"length","token_ids":[7],"prompt_token_ids":[1,2],"prompt_logprobs":[null,{}]}]}"#;
        let edited = whole(body, &CompletionAnswerOptions { echo: true, ..NOTHING }, &mut recorder).unwrap();
        assert!(String::from_utf8(edited).unwrap().contains(r#""prompt_logprobs":null"#));
        let call = recorder.finish(CallStatus::Complete, None).remove(0);
        assert!(call.flaws.is_empty());
        assert_eq!(logprobs(&call, 0), [-0.5]);
    }

    #[test]
    fn an_index_beyond_the_batch_is_noted() {
        let mut recorder = recorder(1, 1);
        whole(r#"{"choices":[{"index":5,"token_ids":[7]}]}"#, &NOTHING, &mut recorder);
        assert!(!recorder.finish(CallStatus::Complete, None).remove(0).is_trainable());
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            let mut recorder = recorder(1, 1);
            event(&text, &NOTHING, &mut recorder);
            whole(&text, &NOTHING, &mut recorder);
        }
    }
}
