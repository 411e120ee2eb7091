//! What the dialects share that are translated to chat completions and back.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::StreamProgress;
use super::chat;
use super::chat::completion::ChatCompletion;
use super::upstream_error::UpstreamError;
use crate::recorder::Recorder;

/// A comment line for streams of events.
pub(super) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The way back of one call: what upstream says, in the words of the agent's dialect.
pub(crate) trait Translator: fmt::Debug + Send + Sync {
    /// The content type of a stream as the agent gets it.
    fn stream_content_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    /// A whole answer.
    fn whole(&mut self, answer: &ChatCompletion<'_>) -> Vec<u8>;

    /// One chunk of upstream's stream: appends the events that it becomes, whole.
    fn chunk(&mut self, chunk: &ChatCompletion<'_>, out: &mut Vec<u8>);

    /// Upstream's `[DONE]`: appends the closing events, which are held until the call's record is kept. Nothing after an
    /// error.
    fn end(&mut self, out: &mut Vec<u8>);

    /// Upstream put an error into its stream: appends the dialect's own error event.
    fn error(&mut self, error: &UpstreamError, out: &mut Vec<u8>);

    /// A successful stream that says of an error what the agent would not read in an error answer.
    fn error_as_stream(&mut self, _error: &UpstreamError) -> Option<Vec<u8>> {
        None
    }

    /// What keeps a silent connection open and is no part of the answer.
    fn keep_alive(&self) -> &'static [u8] {
        KEEP_ALIVE
    }
}

#[derive(Deserialize)]
struct MaybeError<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// How many tokens upstream's `/tokenize` counted; none if that is no answer of it.
pub(super) fn token_count(answer: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Tokenized {
        count: u64,
    }
    serde_json::from_slice(answer).ok().map(|Tokenized { count }| count)
}

/// Records one event of upstream's stream and appends what it becomes.
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
    chat::answer::record(data, recorder);
    match read(data) {
        Ok(chunk) => translator.chunk(&chunk, out),
        Err(error) => translator.error(&error, out),
    }
    StreamProgress::More
}

/// Records a whole answer and gives it in the agent's dialect.
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

/// What stands beside an error need not be of any form, so it is looked for once more.
fn unreadable(data: &str, unread: &serde_json::Error) -> UpstreamError {
    if let Ok(MaybeError { error: Some(error) }) = serde_json::from_str(data) {
        return UpstreamError::inside_success(error.get());
    }
    let message = format!("the upstream's answer is not of the form of a chat completion: {unread}");
    UpstreamError::new(http::StatusCode::BAD_GATEWAY, message)
}
