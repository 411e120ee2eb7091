//! The agent plane: what agents call, and nothing else can be reached through it.
//!
//! A call goes: which trial ([`crate::identity`]) → what goes upstream ([`crate::dialect`]) → a replica
//! ([`crate::upstream`]) → the answer, recorded as it passes ([`crate::tap`], or whole here) → the store → the agent.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, response};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use rolltap_rollout::call::CallStatus;

use crate::call_under_way::{CallGuard, CallUnderWay, Ended};
use crate::dialect::chat::answer::{self, Asked};
use crate::dialect::chat::request::{self, Prepared};
use crate::dialect::error::AgentError;
use crate::identity;
use crate::store::{self, Store};
use crate::tap::TapBody;
use crate::trial::{Refusal, Trial};
use crate::trials::Trials;
use crate::upstream::{self, Pool};

/// Long contexts with images; vLLM itself has no limit.
const LARGEST_REQUEST: usize = 256 << 20;
/// A million tokens with logprobs and alternatives stay below.
const LARGEST_ANSWER: usize = 1 << 30;

/// The error of the bodies that we answer with; what is wrong is in the record by then.
type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of every answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BodyError>;

/// What every connection of the agent plane works with.
#[derive(Debug)]
pub(crate) struct AgentPlane {
    pub(crate) trials: Arc<Trials>,
    pub(crate) upstream: Arc<Pool>,
    pub(crate) store: Store,
}

impl AgentPlane {
    /// Answers one request.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<AnswerBody>, Infallible> {
        let (parts, body) = request.into_parts();
        let answered = self.route(&parts, body).await;
        Ok(answered.unwrap_or_else(|error| error.into_response().map(boxed)))
    }

    async fn route(&self, parts: &Parts, body: Incoming) -> Result<Response<AnswerBody>, AgentError> {
        let (key, path) = identity::split_path(parts.uri.path());
        let trial = self.trials.by_key(&identity::key_of(key, &parts.headers)?)?;
        match (&parts.method, path) {
            (&Method::POST, "/v1/chat/completions") => self.chat(&trial, parts, body).await,
            (&Method::GET, "/v1/models") => self.models(&trial, parts).await,
            (_, "/v1/chat/completions" | "/v1/models") => {
                let message = format!("{} is not a method of {path}", parts.method);
                Err(AgentError::new(StatusCode::METHOD_NOT_ALLOWED, "BadRequestError", message))
            }
            _ => {
                let message =
                    format!("there is no {path} here: rolltap serves /v1/chat/completions and /v1/models");
                Err(AgentError::new(StatusCode::NOT_FOUND, "NotFoundError", message))
            }
        }
    }

    async fn models(&self, trial: &Trial, parts: &Parts) -> Result<Response<AnswerBody>, AgentError> {
        let trial_id = &trial.opened().facts.trial_id;
        let sent = self.upstream.send(trial_id, Method::GET, "/v1/models", &parts.headers, Bytes::new());
        let (head, body) = sent.await?.into_parts();
        Ok(Response::from_parts(agent_head(head), boxed(body)))
    }

    async fn chat(
        &self,
        trial: &Arc<Trial>,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<AnswerBody>, AgentError> {
        // The place comes first: what is sampled can then always be kept.
        let place = self.store.reserve().await?;
        let call = CallGuard(trial.admit(place)?);
        let exchanged = tokio::select! {
            exchanged = self.exchange(&call.0, parts, body) => exchanged,
            () = trial.sealed().cancelled() => Err(Refusal::Sealed.into()),
        };
        let (head, answer) = match exchanged {
            Ok(answered) => answered,
            Err(error) => return Err(failed(&call.0, error).await),
        };
        let body = match answer {
            Answer::Stream(asked) => TapBody::new(call, asked).map_err(Into::into).boxed_unsync(),
            Answer::Whole(body) => boxed(Full::new(body)),
        };
        Ok(Response::from_parts(agent_head(head), body))
    }

    /// One request and the beginning of its answer, or all of it where it comes whole.
    async fn exchange(
        &self,
        call: &CallUnderWay,
        parts: &Parts,
        body: Incoming,
    ) -> Result<(response::Parts, Answer), AgentError> {
        let opened = call.trial().opened();
        let trial_id = &opened.facts.trial_id;
        let body = read_request(body).await?;
        let defaults = self.upstream.model_card(trial_id).await.defaults;
        let prepared = request::prepare(&body, &opened.sampling, defaults);
        let Prepared { body, facts, asked } =
            prepared.map_err(|error| AgentError::bad_request(error.to_string()))?;
        call.record(|recorder| recorder.asked(facts))?;
        let sent =
            self.upstream.send(trial_id, Method::POST, "/v1/chat/completions", &parts.headers, body.into());
        let (head, body) = sent.await?.into_parts();
        call.record(|recorder| recorder.answered(head.status))?;
        if head.status.is_success() && is_event_stream(&head) {
            call.stream(body)?;
            return Ok((head, Answer::Stream(asked)));
        }
        let body = read_answer(body).await?;
        let body = whole_answer(call, head.status, body, asked).await?;
        Ok((head, Answer::Whole(body)))
    }
}

/// An answer on its way to the agent.
enum Answer {
    /// It passes as it comes.
    Stream(Asked),
    /// It came whole, and its record is kept.
    Whole(Bytes),
}

/// Records an answer that came whole and makes of it what the agent gets, once the record is kept.
async fn whole_answer(
    call: &CallUnderWay,
    status: StatusCode,
    body: Bytes,
    asked: Asked,
) -> Result<Bytes, AgentError> {
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let for_agent = call.record(|recorder| {
        if status.is_success() {
            return answer::whole(text, asked, recorder);
        }
        recorder.upstream_error(text);
        None
    })?;
    let kept = call.end(CallStatus::Complete, None).ok_or(Ended)?;
    store::outcome(kept.await)?;
    Ok(for_agent.map_or(body, Bytes::from))
}

/// Records that a call came to nothing, if it is not recorded otherwise already, and gives the error to answer with.
async fn failed(call: &CallUnderWay, error: AgentError) -> AgentError {
    let Some(kept) = call.end(CallStatus::Failed, Some(error.to_string())) else { return error };
    store::outcome(kept.await).err().map_or(error, AgentError::from)
}

async fn read_request(body: Incoming) -> Result<Bytes, AgentError> {
    let collected = Limited::new(body, LARGEST_REQUEST).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("the request body is larger than {} MiB", LARGEST_REQUEST >> 20);
            return AgentError::new(StatusCode::PAYLOAD_TOO_LARGE, "BadRequestError", message);
        }
        AgentError::bad_request(format!("the request body broke off: {error}"))
    })
}

async fn read_answer(body: Incoming) -> Result<Bytes, AgentError> {
    let collected = Limited::new(body, LARGEST_ANSWER).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        AgentError::new(
            StatusCode::BAD_GATEWAY,
            "UpstreamError",
            format!("the upstream's answer broke off: {error}"),
        )
    })
}

fn is_event_stream(head: &response::Parts) -> bool {
    let content_type = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    content_type.get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
}

/// The head of upstream's answer for the agent: all of it but what belongs to upstream's own connection.
fn agent_head(mut head: response::Parts) -> response::Parts {
    head.headers = upstream::without_framing(head.headers);
    head.version = http::Version::HTTP_11;
    head.extensions.clear();
    head
}

fn boxed<B>(body: B) -> AnswerBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    body.map_err(Into::into).boxed_unsync()
}
