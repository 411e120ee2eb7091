//! The words of a branch: the messages that each call adds to the conversation, and its answer.
//!
//! The tokens of a branch are one sequence, so the request of each call repeats the conversation before it. A client may
//! repeat a message in another spelling, or without its reasoning. The captured answer counts then, because the policy
//! sampled it.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::lines::refused;
use crate::export::exporter::ExportError;
use crate::row::{CallSpan, RolloutRow};

/// A message in the form of chat completions.
pub(crate) type Message = Map<String, Value>;

/// The words of one call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallWords {
    /// The number of messages of the conversation so far that its request repeats, answers included.
    pub(crate) repeated: usize,
    /// The messages of the request after the repeated ones.
    pub(crate) added: Vec<Message>,
    /// The captured answer.
    pub(crate) answer: Message,
}

/// Returns the words of each call of the row, in order. An entry is `None` if the call has no messages.
///
/// # Errors
/// The messages of a call are not a JSON array of objects, or the array is empty.
pub(crate) fn call_words(row: &RolloutRow) -> Result<Vec<Option<CallWords>>, ExportError> {
    let mut known: Vec<&RawValue> = Vec::new();
    let mut words = Vec::with_capacity(row.calls.len());
    for span in &row.calls {
        let Some(text) = &span.messages else {
            words.push(None);
            continue;
        };
        let failed = |problem: String| unreadable(row, span, &problem);
        let messages: Vec<&RawValue> =
            serde_json::from_str(text).map_err(|error| failed(error.to_string()))?;
        let Some((answer, request)) = messages.split_last() else {
            return Err(failed("the list is empty".to_owned()));
        };
        let repeated = repeated(&known, request);
        let added = request.get(repeated..).unwrap_or_default();
        let read = |message: &&RawValue| message_of(message).map_err(|error| failed(error.to_string()));
        let added = added.iter().map(read).collect::<Result<_, _>>()?;
        words.push(Some(CallWords { repeated, added, answer: read(answer)? }));
        known = messages;
    }
    Ok(words)
}

/// Returns the conversation of the row: the messages of its requests, each once, with the captured answers. Empty if no
/// call has messages.
///
/// # Errors
/// Like [`call_words`].
pub(crate) fn transcript(row: &RolloutRow) -> Result<Vec<Message>, ExportError> {
    let mut transcript = Vec::new();
    for words in call_words(row)?.into_iter().flatten() {
        transcript.truncate(words.repeated);
        transcript.extend(words.added);
        transcript.push(words.answer);
    }
    Ok(transcript)
}

/// Returns the tools that the row's last request with messages offered, or `None` if it offered none.
///
/// # Errors
/// The text is not JSON.
pub(crate) fn offered_tools(row: &RolloutRow) -> Result<Option<&RawValue>, ExportError> {
    let Some(span) = row.calls.iter().rev().find(|span| span.messages.is_some()) else { return Ok(None) };
    let tools = span.tools.as_deref().map(serde_json::from_str).transpose();
    tools.map_err(|error| refused(row, format!("the tools of call {} are no JSON: {error}", span.call_id)))
}

/// Returns the number of messages of `known` that the request repeats.
fn repeated(known: &[&RawValue], request: &[&RawValue]) -> usize {
    let pairs = || known.iter().zip(request);
    // The tokens of both are the same, so a message in the place of a known one with its role is the known one.
    let of_one_role = pairs().take_while(|(a, b)| a.get() == b.get() || role_of(a) == role_of(b)).count();
    if of_one_role == known.len() {
        return of_one_role;
    }
    pairs().take_while(|(a, b)| a.get() == b.get()).count()
}

fn message_of(text: &RawValue) -> Result<Message, serde_json::Error> {
    serde_json::from_str(text.get())
}

fn role_of(text: &RawValue) -> Option<String> {
    let message = message_of(text).ok()?;
    message.get("role").and_then(Value::as_str).map(str::to_owned)
}

fn unreadable(row: &RolloutRow, span: &CallSpan, problem: &str) -> ExportError {
    refused(row, format!("the messages of call {} are no list of chat messages: {problem}", span.call_id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::export::testing::fixture::straight;

    /// Returns the transcript of a row whose two calls have these messages.
    fn of(first: &Value, second: &Value) -> Result<Vec<Value>, String> {
        let mut row = straight().rows.remove(0);
        row.calls[0].messages = Some(first.to_string());
        row.calls[1].messages = Some(second.to_string());
        let transcript = transcript(&row).map_err(|error| error.to_string())?;
        Ok(transcript.into_iter().map(Value::Object).collect())
    }

    fn user(content: &str) -> Value {
        json!({"role": "user", "content": content})
    }

    fn answer(content: &str) -> Value {
        json!({"role": "assistant", "content": content})
    }

    #[test]
    fn each_message_is_in_the_transcript_once() {
        let first = json!([user("a"), answer("b")]);
        let second = json!([user("a"), answer("b"), user("c"), answer("d")]);
        assert_eq!(json!(of(&first, &second).unwrap()), second);
    }

    #[test]
    fn the_captured_answer_counts_if_the_client_repeats_another() {
        let captured = json!({"role": "assistant", "content": "b", "reasoning": "because"});
        let first = json!([user("a"), captured]);
        let second = json!([user("a"), answer("b"), user("c"), answer("d")]);
        assert_eq!(json!(of(&first, &second).unwrap()), json!([user("a"), captured, user("c"), answer("d")]));
    }

    #[test]
    fn a_request_with_other_messages_replaces_those_that_it_does_not_repeat() {
        let first = json!([user("a"), answer("b")]);
        let second = json!([user("a"), user("b"), user("c"), answer("d")]);
        assert_eq!(json!(of(&first, &second).unwrap()), second);
    }

    #[test]
    fn a_call_without_messages_adds_nothing() {
        let mut row = straight().rows.remove(0);
        assert_eq!(transcript(&row).unwrap(), Vec::<Message>::new());
        row.calls[1].messages = Some(json!([user("a"), answer("b"), user("c"), answer("d")]).to_string());
        row.calls[1].tools = Some("[1]".to_owned());
        assert_eq!(transcript(&row).unwrap().len(), 4);
        assert_eq!(offered_tools(&row).unwrap().map(RawValue::get), Some("[1]"));
    }

    #[test]
    fn texts_that_are_no_messages_are_refused() {
        for (text, problem) in
            [("[", "EOF"), ("[]", "the list is empty"), (r#"["hi"]"#, "invalid type"), ("{}", "invalid type")]
        {
            let mut row = straight().rows.remove(0);
            row.calls[1].messages = Some(text.to_owned());
            let error = call_words(&row).unwrap_err().to_string();
            let place = "the messages of call c0001 are no list of chat messages: ";
            assert!(error.contains(place) && error.contains(problem), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(first: String, second in "[\\[\\]{}\":,a-c0-9 ]{0,40}") {
            let mut row = straight().rows.remove(0);
            row.calls[0].messages = Some(first);
            row.calls[1].messages = Some(second);
            let _ = transcript(&row);
        }

        /// A conversation of any length that each request repeats is the last request with its answer.
        #[test]
        fn the_transcript_is_the_last_conversation(contents in prop::collection::vec(".{0,3}", 1..6)) {
            let mut row = straight().rows.remove(0);
            let span = row.calls[0].clone();
            let mut messages = Vec::new();
            row.calls.clear();
            for content in &contents {
                messages.extend([user(content), answer(content)]);
                row.calls.push(CallSpan { messages: Some(json!(messages).to_string()), ..span.clone() });
            }
            let transcript: Vec<_> = transcript(&row).unwrap().into_iter().map(Value::Object).collect();
            prop_assert_eq!(transcript, messages);
        }
    }
}
