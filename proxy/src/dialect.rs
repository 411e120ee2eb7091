//! The dialects of agents: the translation of requests to vLLM's form, and of answers back.
//!
//! vLLM returns ids and logprobs for chat completions and completions. Requests of these two dialects are forwarded
//! with the fewest possible edits ([`chat`], [`completions`]). The other dialects are translated to chat completions
//! and back, event by event. [`prepare`] translates requests, and [`ResponseAdapter`] translates answers.

pub(crate) mod chat;
pub(crate) mod completions;
mod enforced;
pub(crate) mod error_shape;
mod gemini;
mod messages;
pub(crate) mod responses;
mod sampling;
pub(crate) mod upstream_error;
mod validation;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use adapter::Translator;
use bad_request::BadRequest;
use chat::media::{self, Fetching};
pub use enforced::{InvalidSampling, check_sampling};
use rolltap_rollout::call::Dialect;
pub use sampling::ToolStrictLevel;
use serde_json::{Map, Value};
use upstream_error::UpstreamError;

use crate::common::model_aliases::Names;
use crate::dialect::route::{CallEndpoint, CountEndpoint};
use crate::recorder::{CallFacts, Recorder};
use crate::upstream::SamplingDefaults;
use crate::wire::chunk_edit::ChunkRewriter;
use crate::wire::json_edit::Splices;
use crate::wire::sse;

/// A request in the form for upstream, with the facts that the record needs.
#[derive(Debug)]
pub(crate) struct UpstreamRequest {
    /// The path at the upstream server.
    pub(crate) path: &'static str,
    /// The new body, or `None` if the request is forwarded unchanged.
    pub(crate) body: Option<String>,
    pub(crate) facts: CallFacts,
    pub(crate) adapter: ResponseAdapter,
}

/// The inputs of the translation, in addition to the text of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContext<'a> {
    /// Keys that replace those of the request on its way upstream: the trial's sampling and seed.
    pub(crate) enforced: &'a Map<String, Value>,
    pub(crate) names: Names<'a>,
    /// The sampling parameters that the served model uses if the request has none.
    pub(crate) defaults: SamplingDefaults,
    /// The stored responses of the trial, for `previous_response_id`.
    pub(crate) responses: &'a Arc<responses::Memory>,
    /// Whether a request may contain media URLs that upstream would fetch.
    pub(crate) media: Fetching,
    pub(crate) tool_strict_level: ToolStrictLevel,
    /// Whether the trial's server is known to parse reasoning out of answers.
    pub(crate) has_parser: bool,
}

/// Records the answer of one call, and translates it for the agent.
#[derive(Debug)]
pub(crate) enum ResponseAdapter {
    Chat(chat::answer::ChatAdapter),
    Completions(completions::answer::CompletionAnswerOptions),
    Translated(Box<dyn Translator>),
}

/// Whether an event is the last one of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamProgress {
    More,
    Last,
}

/// The action for one event of a stream that is not translated.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EventAction<'d> {
    /// The event is forwarded unchanged.
    AsIs,
    /// The event is forwarded with edited data.
    Edited(Splices<'d>),
    /// The event is dropped: vLLM sends it only because of the proxy's additions to the request.
    Dropped,
    /// The event is `[DONE]`, after which no event follows.
    Last,
}

impl<'d> EventAction<'d> {
    /// Forwards the event with these edits of its data, of which there may be none.
    pub(crate) fn edited(splices: Splices<'d>) -> Self {
        if splices.is_empty() { Self::AsIs } else { Self::Edited(splices) }
    }
}

/// Translates an agent's request to the form for upstream.
pub(crate) fn prepare(
    endpoint: &CallEndpoint,
    text: &str,
    ground: RequestContext<'_>,
) -> Result<UpstreamRequest, BadRequest> {
    match endpoint {
        CallEndpoint::Chat => {
            let ready = chat::request::prepare(text, ground)?;
            let adapter = ResponseAdapter::Chat(chat::answer::ChatAdapter::new(ready.asked));
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

/// Prepares a chat request into which another dialect was translated.
fn translated(
    chat: &Map<String, Value>,
    back: Box<dyn Translator>,
    dialect: Dialect,
    ground: RequestContext<'_>,
) -> Result<UpstreamRequest, BadRequest> {
    let text = serde_json::to_string(chat).map_err(|error| BadRequest::new(error.to_string()))?;
    let ready = chat::request::prepare(&text, ground)?;
    let facts = CallFacts { dialect, ..ready.facts };
    let body = Some(ready.body.unwrap_or(text));
    Ok(UpstreamRequest {
        path: "/v1/chat/completions",
        body,
        facts,
        adapter: ResponseAdapter::Translated(back),
    })
}

/// Returns the request to upstream's `/tokenize` that counts the tokens of a prompt.
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
    // Media are checked for their source only. Whether there are any does not matter for a count.
    let messages = request.get("messages").map(Value::to_string).unwrap_or_default();
    media::in_messages(&messages, fetching)?;
    let model = request.get("model").and_then(Value::as_str).unwrap_or_default();
    if let Some(served) = names.served(model) {
        request.insert("model".into(), served.into());
    }
    serde_json::to_vec(&request).map_err(|error| BadRequest::new(error.to_string()))
}

/// Translates upstream's answer to that request for the agent. Returns `None` if upstream's answer has no count.
pub(crate) fn count_answer(endpoint: &CountEndpoint, answer: &[u8]) -> Option<Vec<u8>> {
    match endpoint {
        CountEndpoint::GenerateContent { .. } => gemini::request::count_answer(answer),
        CountEndpoint::Messages => messages::count_answer(answer),
    }
}

/// Returns the text of a request body.
///
/// # Errors
/// The body is not UTF-8.
pub(crate) fn text_of(body: &[u8]) -> Result<&str, BadRequest> {
    simdutf8::compat::from_utf8(body).map_err(|error| {
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
    /// Whether the request goes upstream as a chat completion.
    pub(crate) fn is_chat(&self) -> bool {
        !matches!(self, Self::Completions(_))
    }

    /// Records one event of upstream's stream, and writes its form for the agent to `passing`. The event is the next
    /// part of `read`.
    pub(crate) fn event(
        &mut self,
        read: &[u8],
        event: Range<usize>,
        recorder: &mut Recorder,
        passing: &mut ChunkRewriter,
    ) -> StreamProgress {
        let bytes = read.get(event.clone()).unwrap_or_default();
        let data = sse::data(bytes);
        // The tokens of an event that cannot be read are unknown.
        if data.is_none() && std::str::from_utf8(bytes).is_err() {
            recorder.unreadable();
        }
        let fate = match (self, data.as_deref()) {
            // `[DONE]` is handled there, because a translator has its own closing events.
            (Self::Translated(translator), Some(data)) => {
                return adapter::event(translator.as_mut(), data, recorder, passing.instead());
            }
            // A comment of upstream means nothing in another dialect.
            (Self::Translated(_), None) => EventAction::Dropped,
            (_, None) => EventAction::AsIs,
            (Self::Chat(adapter), Some(data)) => adapter.event(data, recorder),
            (Self::Completions(asked), Some(data)) => completions::answer::event(data, asked, recorder),
        };
        match fate {
            EventAction::AsIs => passing.keep(event),
            // The data of several lines was joined, and becomes several lines again.
            EventAction::Edited(splices) if matches!(data, Some(Cow::Owned(_))) => {
                let edited = splices.edited().unwrap_or_default();
                sse::write_event(edited.as_bytes(), passing.instead());
            }
            EventAction::Edited(splices) => sse::write_line(passing.instead(), |out| splices.write_to(out)),
            // A replacement without bytes removes the event.
            EventAction::Dropped => drop(passing.instead()),
            EventAction::Last => {
                passing.keep(event);
                return StreamProgress::Last;
            }
        }
        StreamProgress::More
    }

    /// Records a whole answer and returns its form for the agent, or `None` if it is forwarded unchanged.
    ///
    /// # Errors
    /// Returns an error for translated dialects, if upstream's answer is an error or not a chat completion.
    pub(crate) fn whole(
        &mut self,
        body: &str,
        recorder: &mut Recorder,
    ) -> Result<Option<Vec<u8>>, UpstreamError> {
        match self {
            Self::Chat(adapter) => Ok(adapter.whole(body, recorder)),
            Self::Completions(asked) => Ok(completions::answer::whole(body, asked, recorder)),
            Self::Translated(translator) => adapter::whole(translator.as_mut(), body, recorder).map(Some),
        }
    }

    /// Returns the content type of the agent's stream, or `None` if upstream's content type is right.
    pub(crate) fn stream_content_type(&self) -> Option<&'static str> {
        match self {
            Self::Chat(_) | Self::Completions(_) => None,
            Self::Translated(translator) => Some(translator.stream_content_type()),
        }
    }

    /// Rewrites upstream's error for the request that the agent sent; `sent` is the request that went upstream. Returns
    /// `None` if the error is the same, and for dialects whose errors are translated.
    pub(crate) fn error_as_of_agent(&self, answer: &[u8], agent: &[u8], sent: &[u8]) -> Option<String> {
        match self {
            Self::Chat(_) | Self::Completions(_) => {
                let text = |bytes| std::str::from_utf8(bytes).ok();
                validation::as_of_agent(text(answer)?, text(agent)?, text(sent)?)
            }
            Self::Translated(_) => None,
        }
    }

    /// Returns a successful stream that reports the error, for agents that do not read the error in an error answer.
    /// Returns `None` for most errors.
    pub(crate) fn error_as_stream(&mut self, error: &UpstreamError) -> Option<Vec<u8>> {
        match self {
            Self::Chat(_) | Self::Completions(_) => None,
            Self::Translated(translator) => translator.error_as_stream(error),
        }
    }

    /// Returns the bytes that keep a silent connection open without being part of the answer: a comment and a blank
    /// line. Without the blank line, clients that split streams at blank lines merge the comment with the next event
    /// and drop both.
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
