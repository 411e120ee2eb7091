//! A chat answer on its way back: its ids and logprobs are copied into the record, and taken out where only we wanted
//! them. The rules are those of vLLM's own answers with and without the two flags, compared.

mod reading;

use rolltap_rollout::token::Logprob;

use self::reading::{ChatAnswer, ChatChoice};
use crate::dialect::EventAction;
use crate::recorder::{ChoicePart, Recorder};
use crate::wire::json_edit::{Object, Splices};

/// What the agent itself asked for, and so gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChatAnswerOptions {
    pub(crate) logprobs: bool,
    pub(crate) token_ids: bool,
    /// Set where it wants no reasoning and upstream was told to send it all the same: without it vLLM withholds ids and
    /// logprobs of every token.
    pub(crate) hidden: Option<Hidden>,
    /// The agent's own name of the model, where upstream was asked for another.
    pub(crate) renamed: Option<Box<str>>,
}

/// Reasoning that is hidden from an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    /// vLLM has a parser and so says `"reasoning":null` in each chunk: it told, or reasoning came in this stream.
    pub(super) is_null: bool,
}

/// Records a whole answer and gives it back as the agent wants it; none where nothing needs to be taken out.
pub(crate) fn whole(body: &str, asked: &ChatAnswerOptions, recorder: &mut Recorder) -> Option<Vec<u8>> {
    let mut logprobs = Vec::new();
    let Some(answer) = ChatAnswer::read(body, &mut logprobs) else {
        recorder.unreadable();
        return None;
    };
    record_answer(&answer, &logprobs, recorder);
    edited(body, &answer, asked)
}

/// Records a whole answer or one event of a stream whose text does not go to the agent as it is.
pub(crate) fn record(data: &str, recorder: &mut Recorder) {
    let mut logprobs = Vec::new();
    match ChatAnswer::read(data, &mut logprobs) {
        Some(answer) => record_answer(&answer, &logprobs, recorder),
        None => recorder.unreadable(),
    }
}

/// Records one event of a stream and says what becomes of it. An error passes like any other event: vLLM answers 200
/// before it looks at everything, then sends the error and `[DONE]`.
pub(crate) fn event(data: &str, asked: &mut ChatAnswerOptions, recorder: &mut Recorder) -> EventAction {
    if data == "[DONE]" {
        return EventAction::Last;
    }
    let mut logprobs = Vec::new();
    let Some(chunk) = ChatAnswer::read(data, &mut logprobs) else {
        recorder.unreadable();
        return EventAction::AsIs;
    };
    record_answer(&chunk, &logprobs, recorder);
    if let Some(hidden) = &mut asked.hidden {
        hidden.is_null |= chunk.choices().any(has_reasoning);
    }
    if !asked.logprobs && !asked.token_ids && says_nothing(&chunk, asked) {
        return EventAction::Dropped;
    }
    edited(data, &chunk, asked).map_or(EventAction::AsIs, EventAction::Edited)
}

fn record_answer(answer: &ChatAnswer<'_>, logprobs: &[Option<Logprob>], recorder: &mut Recorder) {
    if let Some(error) = answer.error {
        recorder.upstream_error(error);
    }
    if let Some(model) = answer.model {
        recorder.served_model(model);
    }
    if let Some(ids) = answer.prompt_token_ids {
        recorder.prompt(ids);
    }
    for choice in answer.choices() {
        recorder.choice(ChoicePart {
            index: choice.index,
            token_ids: choice.token_ids,
            logprobs: logprobs.get(choice.logprobs_at.clone()).unwrap_or_default(),
            finish_reason: choice.finish_reason.as_deref(),
            stop_reason: choice.stop_reason,
            begins_with_prompt: false,
            said: choice.delta.or(choice.message),
        });
    }
}

/// With ids or logprobs on, vLLM's parsers send a chunk also for tokens that change nothing of the message. An agent
/// that wants no reasoning gets no chunk either for tokens that are reasoning.
fn says_nothing(chunk: &ChatAnswer<'_>, asked: &ChatAnswerOptions) -> bool {
    let is_empty = |choice: &ChatChoice<'_>| {
        let says_nothing = |delta| delta == "{}" || (asked.hidden.is_some() && has_no_words(delta));
        choice.finish_reason.is_none() && choice.delta.is_some_and(says_nothing)
    };
    chunk.choices().next().is_some() && chunk.choices().all(is_empty)
}

/// Whether nothing is left of a delta without its reasoning. vLLM's first chunk, which names the role, is sent always.
fn has_no_words(delta: &str) -> bool {
    let Ok(delta) = Object::scan(delta) else { return false };
    let is_empty = |key| delta.get(key).is_none_or(|value| matches!(value, "null" | "\"\"" | "[]"));
    delta.get("role").is_none() && is_empty("content") && is_empty("tool_calls")
}

/// None if the text has nothing that the agent did not ask for.
fn edited(text: &str, answer: &ChatAnswer<'_>, asked: &ChatAnswerOptions) -> Option<Vec<u8>> {
    let mut splices = Splices::of(text);
    if !asked.token_ids {
        let ids = answer.choices().filter_map(|choice| choice.token_ids).chain(answer.prompt_token_ids);
        ids.for_each(|ids| splices.replace(ids, "null"));
    }
    if !asked.logprobs {
        let logprobs = answer.choices().filter_map(|choice| choice.logprobs);
        logprobs.for_each(|logprobs| splices.replace(logprobs, "null"));
    }
    if let Some(hidden) = &asked.hidden {
        answer.choices().for_each(|choice| hide_reasoning(choice, hidden, &mut splices));
    }
    if let (Some(model), Some(renamed)) = (answer.model, &asked.renamed) {
        splices.replace(model, serde_json::Value::from(&**renamed).to_string());
    }
    splices.edited()
}

/// As vLLM leaves it out: a delta without other words is empty, any other part has none.
fn hide_reasoning(choice: &ChatChoice<'_>, hidden: &Hidden, splices: &mut Splices<'_>) {
    if let Some(delta) = choice.delta.filter(|delta| has_no_words(delta)) {
        splices.replace(delta, "{}");
        return;
    }
    let Some((part, object)) =
        choice.delta.or(choice.message).and_then(|part| Some((part, Object::scan(part).ok()?)))
    else {
        return;
    };
    if let Some(reasoning) = object.get("reasoning") {
        splices.replace(reasoning, "null");
    } else if hidden.is_null && choice.delta.is_some() && object.get("role").is_none() {
        // Behind the content, in front of tool calls: the order of vLLM's fields.
        match (object.get("content"), part.strip_prefix('{')) {
            (Some(content), _) => splices.replace(content, format!("{content},\"reasoning\":null")),
            (None, Some(members)) => splices.replace(members, format!("\"reasoning\":null,{members}")),
            (None, None) => {}
        }
    }
}

fn has_reasoning(choice: &ChatChoice<'_>) -> bool {
    choice.delta.is_some_and(|delta| memchr::memmem::find(delta.as_bytes(), b"\"reasoning\":\"").is_some())
}

#[cfg(test)]
mod tests;
