//! The parts that all translated dialects share. A translated dialect becomes chat completions, and its answers are
//! translated back.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::StreamProgress;
use super::chat;
use super::chat::completion::ChatCompletion;
use super::upstream_error::UpstreamError;
use crate::recorder::Recorder;

/// A comment for event streams, which clients ignore.
pub(super) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Translates the answer of one call from chat completions to the agent's dialect.
pub(crate) trait Translator: fmt::Debug + Send + Sync {
    /// Returns the content type of the agent's stream.
    fn stream_content_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    /// Translates a whole answer.
    fn whole(&mut self, answer: &ChatCompletion<'_>) -> Vec<u8>;

    /// Translates one chunk of upstream's stream, and appends the resulting complete events to `out`.
    fn chunk(&mut self, chunk: &ChatCompletion<'_>, out: &mut Vec<u8>);

    /// Handles upstream's `[DONE]`, and appends the closing events. The agent gets them only after the call's record is
    /// durable. After an error nothing is appended.
    fn end(&mut self, out: &mut Vec<u8>);

    /// Handles an error within upstream's stream, and appends the error event of the dialect.
    fn error(&mut self, error: &UpstreamError, out: &mut Vec<u8>);

    /// Returns a successful stream that reports the error, if the agent would not read it in an error answer.
    fn error_as_stream(&mut self, _error: &UpstreamError) -> Option<Vec<u8>> {
        None
    }

    /// Returns the bytes that keep a silent connection open and are not part of the answer.
    fn keep_alive(&self) -> &'static [u8] {
        KEEP_ALIVE
    }
}

#[derive(Deserialize)]
struct MaybeError<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Returns the token count in an answer of upstream's `/tokenize`, or `None` if there is none.
pub(super) fn token_count(answer: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Tokenized {
        count: u64,
    }
    serde_json::from_slice(answer).ok().map(|Tokenized { count }| count)
}

/// Records one event of upstream's stream, and appends its translation to `out`.
pub(super) fn event(
    translator: &mut dyn Translator,
    data: &str,
    recorder: &mut Recorder,
    out: &mut Vec<u8>,
) -> StreamProgress {
    if data == "[DONE]" {
        translator.end(out);
        return StreamProgress::Last;
    }
    // The raw text is recorded first: the record needs it even if the translation fails.
    chat::answer::record(data, recorder);
    match read(data) {
        Ok(chunk) => translator.chunk(&chunk, out),
        Err(error) => translator.error(&error, out),
    }
    StreamProgress::More
}

/// Records a whole answer and translates it to the agent's dialect.
///
/// # Errors
/// Returns an error if upstream's answer is an error or not a chat completion.
pub(super) fn whole(
    translator: &mut dyn Translator,
    body: &str,
    recorder: &mut Recorder,
) -> Result<Vec<u8>, UpstreamError> {
    chat::answer::record(body, recorder);
    Ok(translator.whole(&read(body)?))
}

fn read(data: &str) -> Result<ChatCompletion<'_>, UpstreamError> {
    match serde_json::from_str::<ChatCompletion<'_>>(data) {
        Ok(ChatCompletion { error: Some(error), .. }) => Err(UpstreamError::inside_success(error.get())),
        Ok(spoken) => Ok(spoken),
        Err(unread) => Err(unreadable(data, &unread)),
    }
}

/// Builds the error for text that is not a chat completion. The members beside `error` may have any form, so `error` is
/// searched once more on its own.
fn unreadable(data: &str, unread: &serde_json::Error) -> UpstreamError {
    // A text without `error` gives the parse error, with status 502.
    if let Ok(MaybeError { error: Some(error) }) = serde_json::from_str(data) {
        return UpstreamError::inside_success(error.get());
    }
    let message = format!("the upstream's answer is not of the form of a chat completion: {unread}");
    UpstreamError::new(http::StatusCode::BAD_GATEWAY, message)
}
