//! One call: what goes upstream, and its answer on the way back.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, response};
use http_body::Frame;
use http_body_util::{BodyExt, Limited, StreamBody};
use rolltap_rollout::call::CallStatus;

use crate::agent_plane::error::AgentError;
use crate::agent_plane::request_body::joined;
use crate::agent_plane::{AgentPlane, AnswerBody, boxed, whole};
use crate::common::history::History;
use crate::common::redaction::Redaction;
use crate::dialect::error_shape::ErrorShape;
use crate::dialect::route::{CallEndpoint, CountEndpoint};
use crate::dialect::upstream_error::UpstreamError;
use crate::dialect::{self, RequestContext, ResponseAdapter, UpstreamRequest};
use crate::prefix::prompt_ids;
use crate::recorder::Recorder;
use crate::roles::RoleRequest;
use crate::trial::call::{CallEnded, CallGuard, InFlightCall};
use crate::trial::keep_alive::IdleTimer;
use crate::trial::replay::Replay;
use crate::trial::retry::Fingerprint;
use crate::trial::tap::{TapBody, WholeBody};
use crate::trial::{CallRefusal, Trial};
use crate::upstream::{self, UpstreamBody};

/// A million tokens with logprobs and alternatives stay below.
const LARGEST_ANSWER: usize = 1 << 30;

/// What vLLM answers where a request is wrong.
const REFUSALS: [StatusCode; 3] =
    [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer on its way to the agent.
enum AgentAnswer {
    /// It passes as it comes.
    Stream,
    /// It came whole, and its record is kept.
    Whole(Bytes),
}

impl AgentPlane {
    /// Answers a call that its trial has admitted.
    pub(crate) async fn exchange(
        &self,
        call: Arc<InFlightCall>,
        endpoint: &CallEndpoint,
        shape: ErrorShape,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<Response<AnswerBody>, AgentError> {
        let guard = CallGuard::new(Arc::clone(&call));
        let exchanged = tokio::select! {
            exchanged = self.ask(&call, endpoint, shape, parts, body) => exchanged,
            () = call.trial().sealed().cancelled() => Err(CallRefusal::Sealed.into()),
        };
        match exchanged {
            Ok((head, AgentAnswer::Stream)) => {
                let body = TapBody::new(guard, IdleTimer::new(self.longest_silence));
                Ok(Response::from_parts(head, boxed(body)))
            }
            Ok((head, AgentAnswer::Whole(body))) => {
                Ok(Response::from_parts(head, boxed(WholeBody::new(guard, body))))
            }
            Err(error) => Err(failed(&call, error).await),
        }
    }

    /// One request and the beginning of its answer, or all of it where it comes whole.
    async fn ask(
        &self,
        call: &InFlightCall,
        endpoint: &CallEndpoint,
        shape: ErrorShape,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<(response::Parts, AgentAnswer), AgentError> {
        let trial = call.trial();
        let trial_id = &trial.opened().facts.trial_id;
        call.record(|recorder| {
            recorder.spoken(endpoint.dialect());
            recorder.hides(Arc::clone(&self.lifecycle.redaction));
        })?;
        let ground = RequestContext {
            enforced: &trial.enforced(call.ordinal()),
            names: self.names(trial),
            defaults: self.lifecycle.upstream.model_card(trial_id).await.defaults,
            responses: trial.responses(),
            media: self.media,
            tool_strict_level: self.tool_strict_level,
            has_parser: self.lifecycle.upstream.has_parser(trial_id),
        };
        let UpstreamRequest { path, body: edited, facts, mut back } =
            dialect::prepare(endpoint, body, ground)?;
        let intended = edited.map_or_else(|| body.clone(), Bytes::from);
        let has_media = facts.has_media;
        let role = self.roles.role_of(RoleRequest::of(&facts, &intended));
        call.record(|recorder| {
            recorder.is_for(role);
            recorder.asked(facts);
        })?;
        let by_ids = if back.is_chat() { self.continued(call, &intended, has_media).await? } else { None };
        call.is_intended().await??;
        let sent = self.send(call, path, parts, intended.clone(), by_ids).await?;
        let (head, answered) = sent.into_parts();
        call.record(|recorder| recorder.answered(head.status, answered.served_by()))?;
        let mut head = head_for_agent(head);
        if head.status.is_success() && is_event_stream(&head.headers) {
            set_content_type(&mut head.headers, back.stream_content_type());
            call.answer_begins(&head);
            call.stream(answered, back)?;
            return Ok((head, AgentAnswer::Stream));
        }
        let answered = read_answer(answered, self.longest_silence).await?;
        if head.status.is_success() {
            let answer = whole_answer(call, &mut head, &answered, &mut back).await?;
            return Ok((head, AgentAnswer::Whole(answer.unwrap_or(answered))));
        }
        let answered = back.error_as_of_agent(&answered, body, &intended).map_or(answered, Bytes::from);
        let answer =
            error_answer(call, &mut head, &self.lifecycle.redaction, &answered, &mut back, shape).await?;
        Ok((head, AgentAnswer::Whole(answer.unwrap_or(answered))))
    }

    /// The request with its prompt as token ids, where its conversation goes on from tokens that are known.
    async fn continued(
        &self,
        call: &InFlightCall,
        body: &Bytes,
        has_media: bool,
    ) -> Result<Option<Bytes>, AgentError> {
        let trial = call.trial();
        let history = trial.opened().history;
        let (false, Ok(text)) = (history == History::Off, std::str::from_utf8(body)) else { return Ok(None) };
        let trial_id = &trial.opened().facts.trial_id;
        let planned = self.prefix.plan(trial_id, trial.memory(), text, history, has_media).await;
        let Some(plan) = planned else { return Ok(None) };
        let place = self.lifecycle.upstream.ids_place(trial_id);
        let by_ids = plan.ids.as_ref().and_then(|ids| prompt_ids::given(text, ids, place)).map(Bytes::from);
        call.record(|recorder| recorder.planned(plan))?;
        Ok(by_ids)
    }

    /// Sends a request by ids, if it has them. A server that finds something wrong with it so is sent the messages: it then
    /// says it in the words that agents know, of a prompt that is too long above all.
    async fn send(
        &self,
        call: &InFlightCall,
        path: &str,
        parts: &Parts,
        body: Bytes,
        by_ids: Option<Bytes>,
    ) -> Result<Response<UpstreamBody>, AgentError> {
        let trial_id = &call.trial().opened().facts.trial_id;
        let upstream = &self.lifecycle.upstream;
        if let Some(by_ids) = by_ids {
            let sent = upstream.send(trial_id, Method::POST, path, &parts.headers, by_ids).await?;
            if !REFUSALS.contains(&sent.status()) {
                return Ok(sent);
            }
            call.record(Recorder::ids_were_refused)?;
        }
        Ok(upstream.send(trial_id, Method::POST, path, &parts.headers, body).await?)
    }

    /// The answer of the equal call of which the agent got no end; none where there is no such call.
    pub(crate) async fn rejoin(trial: &Trial, fingerprint: Fingerprint) -> Option<Response<AnswerBody>> {
        let Replay { head, pieces, kept } = trial.retried(fingerprint)?;
        // What is not kept is sampled again, as nobody knows when it will be.
        kept?.await.ok()?;
        let frames = pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Frame::data(piece)));
        let mut response = Response::new(boxed(StreamBody::new(stream::iter(frames))));
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        Some(response)
    }

    /// Asks upstream how many tokens a prompt has.
    pub(crate) async fn counted(
        &self,
        trial: &Trial,
        endpoint: &CountEndpoint,
        shape: ErrorShape,
        parts: &Parts,
        body: Vec<u8>,
    ) -> Result<Response<AnswerBody>, AgentError> {
        let trial_id = &trial.opened().facts.trial_id;
        let sent =
            self.lifecycle.upstream.send(trial_id, Method::POST, "/tokenize", &parts.headers, body.into());
        let (head, body) = sent.await?.into_parts();
        let mut head = head_for_agent(head);
        let body = read_answer(body, self.longest_silence).await?;
        let said = String::from_utf8_lossy(&body);
        let text = self.lifecycle.redaction.redacted(&said);
        let answer = if head.status.is_success() {
            dialect::count_answer(endpoint, &body)
        } else {
            shape.translated(&UpstreamError::of_answer(head.status, &text))
        };
        set_content_type(&mut head.headers, answer.is_some().then_some("application/json"));
        Ok(Response::from_parts(head, whole(answer.map_or(body, Bytes::from))))
    }
}

/// Records an answer that came whole and makes of it what the agent gets, once the record is kept. None where the agent
/// gets it as it came.
async fn whole_answer(
    call: &InFlightCall,
    head: &mut response::Parts,
    body: &Bytes,
    back: &mut ResponseAdapter,
) -> Result<Option<Bytes>, AgentError> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let for_agent = call.record(|recorder| back.whole(text, recorder))??.map(Bytes::from);
    if for_agent.is_some() && matches!(back, ResponseAdapter::Translated(_)) {
        head.headers.insert(header::CONTENT_TYPE, JSON);
    }
    call.answer_begins(head);
    let kept = call.end_whole(for_agent.as_ref().unwrap_or(body)).ok_or(CallEnded)?;
    kept.await.inspect_err(|_| call.answer_is_replaced())?;
    Ok(for_agent)
}

/// Records upstream's error and words it for the agent, its status kept. None where the agent gets it as it came.
async fn error_answer(
    call: &InFlightCall,
    head: &mut response::Parts,
    redaction: &Redaction,
    body: &Bytes,
    back: &mut ResponseAdapter,
    shape: ErrorShape,
) -> Result<Option<Bytes>, AgentError> {
    let said = String::from_utf8_lossy(body);
    let text = redaction.redacted(&said);
    call.record(|recorder| recorder.upstream_error(&text))?;
    let error = UpstreamError::of_answer(head.status, &text);
    let as_stream = back.error_as_stream(&error);
    let for_agent = match as_stream {
        Some(stream) => {
            head.status = StatusCode::OK;
            set_content_type(&mut head.headers, back.stream_content_type());
            Some(stream)
        }
        None => {
            let translated = shape.translated(&error);
            set_content_type(&mut head.headers, translated.is_some().then_some("application/json"));
            // As it came, unless it tells a secret.
            translated.or_else(|| matches!(text, Cow::Owned(_)).then(|| text.into_owned().into_bytes()))
        }
    };
    let kept = call.end(CallStatus::Failed, None).ok_or(CallEnded)?;
    kept.await?;
    Ok(for_agent.map(Bytes::from))
}

/// Records that a call came to nothing, if it is not recorded otherwise already, and gives the error to answer with.
async fn failed(call: &InFlightCall, error: AgentError) -> AgentError {
    let Some(kept) = call.end(CallStatus::Failed, Some(error.to_string())) else { return error };
    kept.await.err().map_or(error, AgentError::from)
}

/// Reads an answer that comes whole; its pieces may take their time, each no longer than `patience`.
pub(crate) async fn read_answer(body: UpstreamBody, patience: Duration) -> Result<Bytes, AgentError> {
    let broke_off = |status, reason: &dyn std::fmt::Display| {
        AgentError::new(status, "UpstreamError", format!("the upstream's answer broke off: {reason}"))
    };
    let mut body = std::pin::pin!(Limited::new(body, LARGEST_ANSWER));
    let mut pieces = Vec::new();
    loop {
        match tokio::time::timeout(patience, body.frame()).await {
            Ok(None) => return Ok(joined(pieces)),
            Ok(Some(Ok(frame))) => pieces.extend(frame.into_data()),
            Ok(Some(Err(error))) => return Err(broke_off(StatusCode::BAD_GATEWAY, &error)),
            Err(_) => {
                let reason = format!("nothing more came for {patience:?}");
                return Err(broke_off(StatusCode::GATEWAY_TIMEOUT, &reason));
            }
        }
    }
}

/// The head of upstream's answer for the agent: all of it but what belongs to upstream's own connection.
pub(crate) fn head_for_agent(mut head: response::Parts) -> response::Parts {
    head.headers = upstream::without_framing(head.headers);
    head.version = http::Version::HTTP_11;
    head.extensions.clear();
    head
}

fn set_content_type(headers: &mut HeaderMap, content_type: Option<&'static str>) {
    if let Some(content_type) = content_type {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    content_type.get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
}
