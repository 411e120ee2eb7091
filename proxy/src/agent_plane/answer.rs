//! The way back of an answer: as a stream, whole, as an error in the agent's dialect, or replayed for a retry.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, response};
use http_body::Frame;
use http_body_util::StreamBody;
use rolltap_rollout::call::CallStatus;

use crate::agent_plane::call::OutgoingCall;
use crate::agent_plane::error::AgentError;
use crate::agent_plane::gateway_page;
use crate::agent_plane::request::AgentRequest;
use crate::agent_plane::{AgentPlane, AnswerBody, boxed};
use crate::common::clock;
use crate::dialect::ResponseAdapter;
use crate::dialect::error_shape::ErrorShape;
use crate::dialect::route::CallEndpoint;
use crate::dialect::upstream_error::UpstreamError;
use crate::store::{CallNote, CallNoteKind, Event, Store};
use crate::trial::Trial;
use crate::trial::call::{CallEnded, InFlightCall};
use crate::trial::replay::{Replay, ReplayRecord};
use crate::trial::retry::Fingerprint;
use crate::upstream::{self, AnswerError, ReadLimits, UpstreamBody};

/// The largest answer in bytes. A million tokens with logprobs and alternatives need less.
const LARGEST_ANSWER: usize = 1 << 30;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Whether an answer is a stream that the agent gets as a stream.
pub(super) fn is_stream(answer: &Response<UpstreamBody>) -> bool {
    let content_type =
        answer.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_event_stream =
        content_type.get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"));
    answer.status().is_success() && is_event_stream
}

/// Hands a streaming answer over to the call, which records it while the agent's connection polls it. Returns the head
/// for the agent.
pub(super) fn stream(
    call: &InFlightCall,
    answer: Response<UpstreamBody>,
    adapter: ResponseAdapter,
) -> Result<response::Parts, AgentError> {
    let (head, body) = answer.into_parts();
    let mut head = head_for_agent(head);
    set_content_type(&mut head.headers, adapter.stream_content_type());
    call.answer_begins(&head);
    call.stream(body, adapter)?;
    Ok(head)
}

/// The recorded answer of the equal call whose agent did not receive the end. `None` if there is no such call.
pub(super) async fn replayed(
    trial: &Trial,
    fingerprint: Fingerprint,
    store: &Store,
) -> Option<Response<AnswerBody>> {
    let Replay { head, pieces, record } = trial.retried(fingerprint)?;
    let ReplayRecord { call_id, kept } = record?;
    // An answer whose record failed is sampled again: a record that may come later must not be trained twice.
    kept.await.ok()?;
    let note = CallNote { call_id, kind: CallNoteKind::Replayed, at: clock::now() };
    store.note(Event::Noted { trial_id: trial.opened().facts.trial_id.clone(), note }).await;
    let frames = pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Frame::data(piece)));
    let mut response = Response::new(boxed(StreamBody::new(stream::iter(frames))));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    Some(response)
}

impl AgentPlane {
    /// Reads a whole answer and records it. Returns the answer for the agent once the record is durable.
    pub(super) async fn whole(
        &self,
        call: &InFlightCall,
        request: &AgentRequest<'_, CallEndpoint>,
        outgoing: &mut OutgoingCall,
        answer: Response<UpstreamBody>,
    ) -> Result<Response<Bytes>, AgentError> {
        let (head, body) = answer.into_parts();
        let mut head = head_for_agent(head);
        let body = read_answer(body, self.longest_silence).await?;
        let adapter = &mut outgoing.adapter;
        if head.status.is_success() {
            let for_agent = success(call, &mut head, &body, adapter).await?;
            return Ok(Response::from_parts(head, for_agent.unwrap_or(body)));
        }
        // vLLM's error may name members that the proxy added: it is reworded for the request that the agent sent.
        let reworded = adapter.error_as_of_agent(&body, &request.body, &outgoing.body);
        let body = reworded.map_or(body, Bytes::from);
        let text = String::from_utf8_lossy(&body);
        let text = self.lifecycle.redaction.redacted(&text);
        let shape = ErrorShape::of_path(request.path);
        let for_agent = failure(call, &mut head, text, adapter, shape).await?;
        Ok(Response::from_parts(head, for_agent.unwrap_or(body)))
    }
}

/// Records a successful answer and returns its body for the agent once the record is durable, or `None` if the body
/// passes unchanged.
async fn success(
    call: &InFlightCall,
    head: &mut response::Parts,
    body: &Bytes,
    adapter: &mut ResponseAdapter,
) -> Result<Option<Bytes>, AgentError> {
    let text = simdutf8::basic::from_utf8(body).unwrap_or_default();
    if let Some(error) = gateway_page::error(head, text) {
        call.record(|recorder| recorder.upstream_error(&error))?;
    }
    let for_agent = call.record(|recorder| adapter.whole(text, recorder))??.map(Bytes::from);
    if for_agent.is_some() && matches!(adapter, ResponseAdapter::Translated(_)) {
        head.headers.insert(header::CONTENT_TYPE, JSON);
    }
    call.answer_begins(head);
    let kept = call.end_whole(for_agent.as_ref().unwrap_or(body)).ok_or(CallEnded)?;
    // Without a durable record the agent gets an error, and a retry must not get this answer.
    kept.await.inspect_err(|_| call.answer_is_replaced())?;
    Ok(for_agent)
}

/// Records upstream's error and translates it for the agent, with the same status. `None` if the body passes unchanged.
async fn failure(
    call: &InFlightCall,
    head: &mut response::Parts,
    text: Cow<'_, str>,
    adapter: &mut ResponseAdapter,
    shape: ErrorShape,
) -> Result<Option<Bytes>, AgentError> {
    let page = gateway_page::error(head, &text);
    call.record(|recorder| recorder.upstream_error(page.as_deref().unwrap_or(&text)))?;
    let error = UpstreamError::of_answer(head.status, &text);
    let for_agent = match adapter.error_as_stream(&error) {
        // Some clients show an error only if it arrives as the event of a successful stream.
        Some(stream) => {
            head.status = StatusCode::OK;
            set_content_type(&mut head.headers, adapter.stream_content_type());
            Some(stream)
        }
        None => {
            let translated = shape.translated(&error);
            set_content_type(&mut head.headers, translated.is_some().then_some("application/json"));
            // An owned text has a redacted secret, so upstream's own bytes must not pass.
            translated.or_else(|| matches!(text, Cow::Owned(_)).then(|| text.into_owned().into_bytes()))
        }
    };
    let kept = call.end(CallStatus::Failed, None).ok_or(CallEnded)?;
    kept.await?;
    Ok(for_agent.map(Bytes::from))
}

/// Reads a whole answer of at most [`LARGEST_ANSWER`] bytes. `longest_silence` limits the time between two of its
/// parts.
pub(super) async fn read_answer(body: UpstreamBody, longest_silence: Duration) -> Result<Bytes, AgentError> {
    let limits = ReadLimits { bytes: LARGEST_ANSWER, silence: longest_silence };
    body.whole(limits).await.map_err(|error| {
        let status = match error {
            AnswerError::Silent(_) => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        AgentError::new(status, "UpstreamError", format!("the upstream's answer broke off: {error}"))
    })
}

/// The head of upstream's answer without the headers of upstream's own connection.
pub(super) fn head_for_agent(mut head: response::Parts) -> response::Parts {
    head.headers = upstream::without_framing(head.headers);
    head.version = http::Version::HTTP_11;
    head.extensions.clear();
    head
}

/// Replaces the content type, unless upstream's own is right.
pub(super) fn set_content_type(headers: &mut HeaderMap, content_type: Option<&'static str>) {
    if let Some(content_type) = content_type {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
}
