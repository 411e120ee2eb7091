//! The wire formats that agents speak, and the way there and back.
//!
//! vLLM gives ids and logprobs of chat completions and completions: those two dialects pass through, edited only where
//! they must be ([`chat`], [`completions`]). The others are translated to chat completions and back, event by event.
//! [`prepare`] is the way there, [`ResponseAdapter`] the way back.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod error_shape;
mod gemini;
mod messages;
pub(crate) mod responses;
mod sampling;
pub(crate) mod upstream_error;
mod validation;

use std::ops::Range;
use std::sync::Arc;

use adapter::Translator;
use bad_request::BadRequest;
use chat::media::{self, Fetching};
use rolltap_rollout::call::Dialect;
pub use sampling::ToolStrictLevel;
use serde_json::{Map, Value};
use upstream_error::UpstreamError;

use crate::common::model_aliases::Names;
use crate::dialect::route::{CallEndpoint, CountEndpoint};
use crate::recorder::{CallFacts, Recorder};
use crate::upstream::SamplingDefaults;
use crate::wire::chunk_edit::ChunkRewriter;
use crate::wire::sse;

/// A request as it goes upstream, and what it said.
#[derive(Debug)]
pub(crate) struct UpstreamRequest {
    /// The path at upstream.
    pub(crate) path: &'static str,
    /// None where it goes as it came.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) facts: CallFacts,
    pub(crate) adapter: ResponseAdapter,
}

/// What a request is prepared with, beside its own text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContext<'a> {
    /// Keys laid over the request as it goes upstream: the trial's sampling and seed.
    pub(crate) enforced: &'a Map<String, Value>,
    pub(crate) names: Names<'a>,
    /// How the served model samples where the request is silent.
    pub(crate) defaults: SamplingDefaults,
    /// The trial's stored responses.
    pub(crate) responses: &'a Arc<responses::Memory>,
    /// Whether upstream may be made to fetch media.
    pub(crate) media: Fetching,
    pub(crate) tool_strict_level: ToolStrictLevel,
    /// Whether the trial's server parses answers, as far as is known.
    pub(crate) has_parser: bool,
}

/// How one call's answer is recorded and handed back to its agent.
#[derive(Debug)]
pub(crate) enum ResponseAdapter {
    Chat(chat::answer::ChatAnswerOptions),
    Completions(completions::answer::CompletionAnswerOptions),
    Translated(Box<dyn Translator>),
}

/// Whether an event was the last one of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamProgress {
    More,
    Last,
}

/// What becomes of one event of a stream that passes through.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EventAction {
    /// It passes as it came.
    AsIs,
    /// It passes with this data.
    Edited(Vec<u8>),
    /// vLLM would not have sent it without us.
    Dropped,
    /// `[DONE]`: nothing comes after it.
    Last,
}

/// Makes of an agent's request what goes upstream.
pub(crate) fn prepare(
    endpoint: &CallEndpoint,
    body: &[u8],
    ground: RequestContext<'_>,
) -> Result<UpstreamRequest, BadRequest> {
    let text = text_of(body)?;
    match endpoint {
        CallEndpoint::Chat => {
            let ready = chat::request::prepare(text, ground)?;
            let adapter = ResponseAdapter::Chat(ready.asked);
            Ok(UpstreamRequest {
                path: "/v1/chat/completions",
                body: ready.body,
                facts: ready.facts,
                adapter,
            })
        }
        CallEndpoint::Completions => {
            let ready = completions::request::prepare(text, ground)?;
            let adapter = ResponseAdapter::Completions(ready.asked);
            Ok(UpstreamRequest { path: "/v1/completions", body: ready.body, facts: ready.facts, adapter })
        }
        CallEndpoint::Responses => {
            let responses::Translated { chat, back } = responses::translate(text, ground.responses)?;
            translated(&chat, Box::new(back), Dialect::Responses, ground)
        }
        CallEndpoint::Messages => {
            let messages::Translated { chat, back } = messages::translate(text)?;
            translated(&chat, Box::new(back), Dialect::Messages, ground)
        }
        CallEndpoint::GenerateContent { model, delivery } => {
            let gemini::request::Translated { chat, back } =
                gemini::request::translate(text, model, *delivery)?;
            translated(&chat, Box::new(back), Dialect::GenerateContent, ground)
        }
    }
}

/// A request that was translated to this chat request.
fn translated(
    chat: &Map<String, Value>,
    back: Box<dyn Translator>,
    dialect: Dialect,
    ground: RequestContext<'_>,
) -> Result<UpstreamRequest, BadRequest> {
    let text = serde_json::to_string(chat).map_err(|error| BadRequest::new(error.to_string()))?;
    let ready = chat::request::prepare(&text, ground)?;
    let facts = CallFacts { dialect, ..ready.facts };
    let body = Some(ready.body.unwrap_or_else(|| text.into_bytes()));
    Ok(UpstreamRequest {
        path: "/v1/chat/completions",
        body,
        facts,
        adapter: ResponseAdapter::Translated(back),
    })
}

/// The request to upstream's `/tokenize` that counts the tokens of a prompt.
pub(crate) fn prepare_count(
    endpoint: &CountEndpoint,
    body: &[u8],
    names: Names<'_>,
    fetching: Fetching,
) -> Result<Vec<u8>, BadRequest> {
    let text = text_of(body)?;
    let mut request = match endpoint {
        CountEndpoint::GenerateContent { model } => gemini::request::count(text, model)?,
        CountEndpoint::Messages => messages::count_request(text)?,
    };
    let messages = request.get("messages").map(Value::to_string).unwrap_or_default();
    media::in_messages(&messages, fetching)?;
    let model = request.get("model").and_then(Value::as_str).unwrap_or_default();
    if let Some(served) = names.served(model) {
        request.insert("model".into(), served.into());
    }
    serde_json::to_vec(&request).map_err(|error| BadRequest::new(error.to_string()))
}

/// Upstream's answer to that, as the agent's client reads it. None if it is no such answer.
pub(crate) fn count_answer(endpoint: &CountEndpoint, answer: &[u8]) -> Option<Vec<u8>> {
    match endpoint {
        CountEndpoint::GenerateContent { .. } => gemini::request::count_answer(answer),
        CountEndpoint::Messages => messages::count_answer(answer),
    }
}

fn text_of(body: &[u8]) -> Result<&str, BadRequest> {
    std::str::from_utf8(body).map_err(|error| {
        BadRequest::new(format!("the request body is not UTF-8 text (byte {})", error.valid_up_to()))
    })
}

impl CallEndpoint {
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Chat => Dialect::ChatCompletions,
            Self::Completions => Dialect::Completions,
            Self::Responses => Dialect::Responses,
            Self::Messages => Dialect::Messages,
            Self::GenerateContent { .. } => Dialect::GenerateContent,
        }
    }
}

impl ResponseAdapter {
    /// Whether upstream is asked by a chat request.
    pub(crate) fn is_chat(&self) -> bool {
        !matches!(self, Self::Completions(_))
    }

    /// Records one event of upstream's stream, the next part of `read`, and says in `passing` what the agent gets of it.
    pub(crate) fn event(
        &mut self,
        read: &[u8],
        event: Range<usize>,
        recorder: &mut Recorder,
        passing: &mut ChunkRewriter,
    ) -> StreamProgress {
        let bytes = read.get(event.clone()).unwrap_or_default();
        let data = sse::data(bytes);
        // Of one that cannot be read, nobody knows which tokens it held.
        if data.is_none() && std::str::from_utf8(bytes).is_err() {
            recorder.unreadable();
        }
        let fate = match (self, data) {
            (Self::Translated(translator), Some(data)) => {
                return adapter::event(translator.as_mut(), &data, recorder, passing.instead());
            }
            // A comment of upstream means nothing in another dialect.
            (Self::Translated(_), None) => EventAction::Dropped,
            (_, None) => EventAction::AsIs,
            (Self::Chat(asked), Some(data)) => chat::answer::event(&data, asked, recorder),
            (Self::Completions(asked), Some(data)) => completions::answer::event(&data, asked, recorder),
        };
        match fate {
            EventAction::AsIs => passing.keep(event),
            EventAction::Edited(data) => sse::write_event(&data, passing.instead()),
            EventAction::Dropped => drop(passing.instead()),
            EventAction::Last => {
                passing.keep(event);
                return StreamProgress::Last;
            }
        }
        StreamProgress::More
    }

    /// Records a whole answer and gives it as the agent wants it; none where it passes as it came.
    pub(crate) fn whole(
        &mut self,
        body: &str,
        recorder: &mut Recorder,
    ) -> Result<Option<Vec<u8>>, UpstreamError> {
        match self {
            Self::Chat(asked) => Ok(chat::answer::whole(body, asked, recorder)),
            Self::Completions(asked) => Ok(completions::answer::whole(body, asked, recorder)),
            Self::Translated(translator) => adapter::whole(translator.as_mut(), body, recorder).map(Some),
        }
    }

    /// The content type of a stream as the agent gets it; none where upstream's own is right.
    pub(crate) fn stream_content_type(&self) -> Option<&'static str> {
        match self {
            Self::Chat(_) | Self::Completions(_) => None,
            Self::Translated(translator) => Some(translator.stream_content_type()),
        }
    }

    /// Upstream's error answer as vLLM words it for the request that the agent sent, where `sent` went upstream. None
    /// where it reads the same, or in a dialect whose errors are translated.
    pub(crate) fn error_as_of_agent(&self, answer: &[u8], agent: &[u8], sent: &[u8]) -> Option<String> {
        match self {
            Self::Chat(_) | Self::Completions(_) => {
                let text = |bytes| std::str::from_utf8(bytes).ok();
                validation::as_of_agent(text(answer)?, text(agent)?, text(sent)?)
            }
            Self::Translated(_) => None,
        }
    }

    /// A successful stream that says of an error what the agent would not read in an error answer; none for most.
    pub(crate) fn error_as_stream(&mut self, error: &UpstreamError) -> Option<Vec<u8>> {
        match self {
            Self::Chat(_) | Self::Completions(_) => None,
            Self::Translated(translator) => translator.error_as_stream(error),
        }
    }

    /// What keeps a silent connection open and is no part of the answer: a comment and a blank line. Without the blank line,
    /// clients that split a stream at blank lines take the event behind the comment for a part of it and drop both.
    pub(crate) fn keep_alive(&self) -> &'static [u8] {
        match self {
            Self::Chat(_) | Self::Completions(_) => adapter::KEEP_ALIVE,
            Self::Translated(translator) => translator.keep_alive(),
        }
    }
}

mod adapter;
pub(crate) mod bad_request;
pub(crate) mod route;
#[cfg(test)]
pub(crate) mod tests;
