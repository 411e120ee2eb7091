//! A chat answer on its way back: its ids and logprobs are copied into the record, and taken out where only we wanted
//! them. The rules are those of vLLM's own answers with and without the two flags, compared.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::Fate;
use crate::recorder::{ChoicePart, Recorder};
use crate::surgery::Splices;

/// What the agent itself asked for, and so gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) logprobs: bool,
    pub(crate) token_ids: bool,
    /// The agent's own name of the model, where upstream was asked for another.
    pub(crate) renamed: Option<Box<str>>,
}

/// A whole answer, or a chunk of one: `message` or `delta` tell.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt_token_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<Vec<AnswerChoice<'a>>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct AnswerChoice<'a> {
    #[serde(default)]
    index: u32,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    token_ids: Option<&'a RawValue>,
}

/// Records a whole answer and gives it back as the agent wants it; none where nothing needs to be taken out.
pub(crate) fn whole(body: &str, asked: &Asked, recorder: &mut Recorder) -> Option<Vec<u8>> {
    let Ok(answer) = serde_json::from_str::<Answer<'_>>(body) else {
        recorder.unreadable();
        return None;
    };
    record_answer(&answer, recorder);
    without_ours(body, &answer, asked)
}

/// Records a whole answer or one event of a stream whose text does not go to the agent as it is.
pub(crate) fn record(data: &str, recorder: &mut Recorder) {
    match serde_json::from_str::<Answer<'_>>(data) {
        Ok(answer) => record_answer(&answer, recorder),
        Err(_) => recorder.unreadable(),
    }
}

/// Records one event of a stream and says what becomes of it. An error passes like any other event: vLLM answers 200
/// before it looks at everything, then sends the error and `[DONE]`.
pub(crate) fn event(data: &str, asked: &Asked, recorder: &mut Recorder) -> Fate {
    if data == "[DONE]" {
        return Fate::Last;
    }
    let Ok(chunk) = serde_json::from_str::<Answer<'_>>(data) else {
        recorder.unreadable();
        return Fate::AsIs;
    };
    record_answer(&chunk, recorder);
    if !asked.logprobs && !asked.token_ids && says_nothing(&chunk) {
        return Fate::Dropped;
    }
    without_ours(data, &chunk, asked).map_or(Fate::AsIs, Fate::Edited)
}

fn record_answer(answer: &Answer<'_>, recorder: &mut Recorder) {
    if let Some(error) = answer.error {
        recorder.upstream_error(error.get());
    }
    if let Some(ids) = answer.prompt_token_ids {
        recorder.prompt(ids);
    }
    for choice in answer.choices.iter().flatten() {
        recorder.choice(ChoicePart {
            index: choice.index,
            token_ids: choice.token_ids,
            logprobs: choice.logprobs,
            finish_reason: choice.finish_reason.as_deref(),
            stop_reason: choice.stop_reason,
            begins_with_prompt: false,
        });
    }
}

/// With ids or logprobs on, vLLM's parsers send a chunk also for tokens that change nothing of the message.
fn says_nothing(chunk: &Answer<'_>) -> bool {
    let choices = chunk.choices.as_deref().unwrap_or_default();
    let is_empty = |choice: &AnswerChoice<'_>| {
        choice.finish_reason.is_none() && choice.delta.is_some_and(|delta| delta.get() == "{}")
    };
    !choices.is_empty() && choices.iter().all(is_empty)
}

/// None if the text has nothing that the agent did not ask for.
fn without_ours(text: &str, answer: &Answer<'_>, asked: &Asked) -> Option<Vec<u8>> {
    let mut splices = Splices::of(text);
    let choices = || answer.choices.iter().flatten();
    if !asked.token_ids {
        let ids = choices().filter_map(|choice| choice.token_ids).chain(answer.prompt_token_ids);
        ids.for_each(|ids| splices.replace(ids, "null"));
    }
    if !asked.logprobs {
        choices().filter_map(|choice| choice.logprobs).for_each(|logprobs| splices.replace(logprobs, "null"));
    }
    if let (Some(model), Some(renamed)) = (answer.model, &asked.renamed) {
        splices.replace(model, serde_json::Value::from(&**renamed).to_string());
    }
    if splices.is_empty() {
        return None;
    }
    let mut edited = Vec::with_capacity(text.len());
    splices.apply(&mut edited);
    Some(edited)
}

#[cfg(test)]
mod tests;
