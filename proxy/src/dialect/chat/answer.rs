//! Records a chat answer's ids and logprobs, and removes the fields that only the proxy requested. The rules come from
//! a comparison of vLLM's answers with and without the two flags.

mod chunk_head;
mod reading;

use rolltap_rollout::token::Logprob;

use self::chunk_head::ChunkHead;
use self::reading::{ChatAnswer, ChatChoice};
use crate::dialect::EventAction;
use crate::recorder::lists::LogprobList;
use crate::recorder::{ChoicePart, Recorder};
use crate::wire::json_edit::{Object, Splices};

/// The fields that the agent itself requested, which remain in the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChatAnswerOptions {
    pub(crate) logprobs: bool,
    pub(crate) token_ids: bool,
    /// Set if the agent wants no reasoning but the proxy requested it: without reasoning, vLLM withholds the ids and
    /// logprobs of all tokens.
    pub(crate) hidden: Option<Hidden>,
    /// The agent's name of the model, if upstream was asked for another name.
    pub(crate) renamed: Option<Box<str>>,
}

/// Reasoning that is removed from the agent's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    /// Whether vLLM has a reasoning parser and thus writes `"reasoning":null` in each chunk. This is known of the
    /// server in advance, or becomes known when reasoning appears in the stream.
    pub(super) is_null: bool,
}

/// The minimum number of bytes of a token with its logprob in a whole answer.
const BYTES_OF_TOKEN: usize = 80;

/// Records the answer of one call, and edits it for the agent.
#[derive(Debug, Default)]
pub(crate) struct ChatAdapter {
    asked: ChatAnswerOptions,
    head: ChunkHead,
}

impl ChatAdapter {
    pub(crate) fn new(asked: ChatAnswerOptions) -> Self {
        Self { asked, head: ChunkHead::default() }
    }

    /// Records a whole answer and returns its form for the agent, or `None` if it is forwarded unchanged.
    pub(crate) fn whole(&self, body: &str, recorder: &mut Recorder) -> Option<Vec<u8>> {
        // Mostly the list of logprobs is the longest part, so it need not grow.
        let mut logprobs = LogprobList::with_capacity(body.len() / BYTES_OF_TOKEN);
        let Some(answer) = ChatAnswer::read(body, None, &mut logprobs) else {
            recorder.unreadable();
            return None;
        };
        record_answer(&answer, &logprobs, recorder);
        edited(body, &answer, &self.asked).edited().map(String::into_bytes)
    }

    /// Records one event of a stream, and decides what the agent gets of the event. An error is forwarded like any other
    /// event: vLLM answers with status 200 before it has checked everything, then sends the error and `[DONE]`.
    pub(crate) fn event<'d>(&mut self, data: &'d str, recorder: &mut Recorder) -> EventAction<'d> {
        if data == "[DONE]" {
            return EventAction::Last;
        }
        let Self { asked, head } = self;
        let mut logprobs = LogprobList::new();
        let Some(chunk) = ChatAnswer::read(data, Some(head), &mut logprobs) else {
            recorder.unreadable();
            return EventAction::AsIs;
        };
        record_answer(&chunk, &logprobs, recorder);
        if let Some(hidden) = &mut asked.hidden {
            hidden.is_null |= chunk.choices().any(has_reasoning);
        }
        // An agent that requested ids or logprobs gets the empty chunks from vLLM too.
        if !asked.logprobs && !asked.token_ids && says_nothing(&chunk, asked) {
            return EventAction::Dropped;
        }
        EventAction::edited(edited(data, &chunk, asked))
    }
}

/// Records a whole answer or one event of a stream, for dialects that translate the text.
pub(crate) fn record(data: &str, recorder: &mut Recorder) {
    let mut logprobs = LogprobList::new();
    match ChatAnswer::read(data, None, &mut logprobs) {
        Some(answer) => record_answer(&answer, &logprobs, recorder),
        None => recorder.unreadable(),
    }
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
            message: choice.delta.or(choice.message),
        });
    }
}

/// Whether a chunk would not exist without the proxy's flags. With ids or logprobs on, vLLM's parsers also send chunks
/// for tokens that do not change the message. Chunks with nothing but hidden reasoning count too.
fn says_nothing(chunk: &ChatAnswer<'_>, asked: &ChatAnswerOptions) -> bool {
    let is_empty = |choice: &ChatChoice<'_>| {
        let says_nothing = |delta| delta == "{}" || (asked.hidden.is_some() && has_no_words(delta));
        choice.finish_reason.is_none() && choice.delta.is_some_and(says_nothing)
    };
    chunk.choices().next().is_some() && chunk.choices().all(is_empty)
}

/// Whether a delta is empty apart from its reasoning. The first chunk, which has the role, never counts as empty,
/// because vLLM always sends it.
fn has_no_words(delta: &str) -> bool {
    let Ok(delta) = Object::scan(delta) else { return false };
    let is_empty = |key| delta.get(key).is_none_or(|value| matches!(value, "null" | "\"\"" | "[]"));
    delta.get("role").is_none() && is_empty("content") && is_empty("tool_calls")
}

/// Removes the proxy's fields, hides the reasoning, and restores the model's name.
fn edited<'d>(text: &'d str, answer: &ChatAnswer<'_>, asked: &ChatAnswerOptions) -> Splices<'d> {
    let mut splices = Splices::of(text);
    if !asked.token_ids {
        // vLLM writes `null` for fields that were not requested.
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
    splices
}

/// Removes the reasoning the way vLLM does: a delta with nothing else becomes empty, and any other part has no
/// reasoning.
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
        // The order is that of vLLM's fields: content, reasoning, tool calls.
        match (object.get("content"), part.strip_prefix('{')) {
            (Some(content), _) => splices.replace(content, format!("{content},\"reasoning\":null")),
            (None, Some(members)) => splices.replace(members, format!("\"reasoning\":null,{members}")),
            (None, None) => {}
        }
    }
}

fn has_reasoning(choice: &ChatChoice<'_>) -> bool {
    // The search in the raw text suffices, because vLLM writes JSON without spaces.
    choice.delta.is_some_and(|delta| memchr::memmem::find(delta.as_bytes(), b"\"reasoning\":\"").is_some())
}

#[cfg(test)]
mod tests;
