//! The path of one call, from the agent's request to the head of its answer.

use std::borrow::Cow;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, response};
use rolltap_rollout::call::CallStatus;

use crate::agent_plane::answer;
use crate::agent_plane::error::AgentError;
use crate::agent_plane::request::AgentRequest;
use crate::agent_plane::{AgentPlane, AnswerBody, boxed};
use crate::common::history::History;
use crate::dialect::route::CallEndpoint;
use crate::dialect::{self, RequestContext, ResponseAdapter, UpstreamRequest};
use crate::prefix::prompt_ids;
use crate::recorder::{CallFacts, Recorder};
use crate::roles::RoleRequest;
use crate::trial::call::{CallGuard, InFlightCall};
use crate::trial::disconnect::Gateway;
use crate::trial::keep_alive::IdleTimer;
use crate::trial::retry::{Fingerprint, Mark};
use crate::trial::tap::{TapBody, WholeBody};
use crate::trial::{CallRefusal, Candidate};
use crate::upstream::{Session, UpstreamBody};
use crate::wire::chat_outline::ChatOutline;

/// The statuses with which vLLM rejects an invalid request.
const REFUSALS: [StatusCode; 3] =
    [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];

/// A call's request in upstream's dialect.
struct TranslatedCall<'a> {
    path: &'static str,
    /// The agent's own text, or the edited one.
    text: Cow<'a, str>,
    facts: CallFacts,
    adapter: ResponseAdapter,
}

/// A call's request as it goes upstream, and the way its answer comes back.
#[derive(Debug)]
pub(super) struct OutgoingCall {
    path: &'static str,
    /// The request with its messages.
    pub(super) body: Bytes,
    /// The request with its prompt as token ids. `None` if the conversation continues no recorded tokens.
    by_ids: Option<Bytes>,
    session: Session,
    pub(super) adapter: ResponseAdapter,
}

/// How the prompt of a call goes upstream.
struct PlannedPrompt {
    session: Session,
    /// The request with its prompt as token ids. `None` if the conversation continues no recorded tokens.
    by_ids: Option<Bytes>,
}

/// How the body of an answer reaches the agent.
enum AgentAnswer {
    /// Event by event, as upstream sends it.
    Stream(response::Parts),
    /// In one piece, whose record is durable.
    Whole(Response<Bytes>),
}

impl AgentPlane {
    /// Answers one call. These are the steps of every call, in this order.
    pub(super) async fn call(
        &self,
        request: &AgentRequest<'_, CallEndpoint>,
    ) -> Result<Response<AnswerBody>, AgentError> {
        // Replay: a marked retry gets the recorded answer, because a second sample would fork the trial.
        let mark = Mark::of(&request.parts.headers);
        let fingerprint = (mark != Mark::None).then(|| Fingerprint::of(request.path, &request.body));
        if let (Mark::Retry, Some(fingerprint)) = (mark, fingerprint)
            && let Some(replayed) = answer::replayed(request.trial, fingerprint, &self.lifecycle.store).await
        {
            return Ok(replayed);
        }
        // Admit: limits and the store's queue slots come first, so that every sampled token can be recorded.
        let call = self.admit(request, fingerprint).await?;
        // The guard ends the call if the agent disconnects at any later step.
        let guard = CallGuard::new(Arc::clone(&call));
        // Pinned here, because a future that is passed by value is stored twice: as argument and in the select.
        let answered = pin!(async {
            // Translate: the request becomes one that vLLM answers with token ids and logprobs.
            let TranslatedCall { path, text, facts, adapter } = self.translate(&call, request).await?;
            // Match the prefix: a prompt that continues recorded tokens is sent as those very ids.
            let PlannedPrompt { session, by_ids } = self.match_prefix(&call, &text, facts, &adapter).await?;
            let mut outgoing = OutgoingCall { path, body: body_of(request, text), by_ids, session, adapter };
            // Announce: the intent is durable before upstream samples, so no crash hides a call.
            call.is_intended().await??;
            // Send: to the trial's replica, by ids if the prefix matched.
            let sent = self.send(&call, request, &outgoing).await?;
            // Stream or whole: a stream is recorded while it passes, a whole answer before it is handed over.
            if answer::is_stream(&sent) {
                answer::stream(&call, sent, outgoing.adapter).map(AgentAnswer::Stream)
            } else {
                self.whole(&call, request, &mut outgoing, sent).await.map(AgentAnswer::Whole)
            }
        });
        match unless_sealed(&call, answered).await {
            Ok(answer) => Ok(self.for_agent(answer, guard)),
            Err(error) => Err(failed(&call, error).await),
        }
    }

    /// Attaches the body that the agent's connection reads. The body owns the call's guard from here on.
    fn for_agent(&self, answer: AgentAnswer, guard: CallGuard) -> Response<AnswerBody> {
        match answer {
            AgentAnswer::Stream(head) => {
                let idle = IdleTimer::new(self.longest_silence);
                Response::from_parts(head, boxed(TapBody::new(guard, idle)))
            }
            AgentAnswer::Whole(answer) => answer.map(|body| boxed(WholeBody::new(guard, body))),
        }
    }

    /// Reserves the call's places in the store, loads the trial's memory if it was evicted, and checks the limits.
    async fn admit(
        &self,
        request: &AgentRequest<'_, CallEndpoint>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Arc<InFlightCall>, AgentError> {
        let candidate = Candidate {
            slots: self.lifecycle.store.reserve_call().await?,
            dialect: request.endpoint.dialect(),
            started_at: request.received_at,
            fingerprint,
            redaction: Arc::clone(&self.lifecycle.redaction),
            gateway: Gateway::of(&request.parts.headers),
            observer: self.lifecycle.observers.of_call(request.trial.opened(), &request.parts.headers),
        };
        let resident = request.trial.resident(&self.lifecycle.store).await;
        Ok(request.trial.admit(&resident, candidate)?)
    }

    /// Translates the request to upstream's dialect, lays the trial's enforced sampling over it, and records its facts.
    async fn translate<'a>(
        &self,
        call: &InFlightCall,
        request: &'a AgentRequest<'_, CallEndpoint>,
    ) -> Result<TranslatedCall<'a>, AgentError> {
        let trial = call.trial();
        let trial_id = &trial.opened().facts.trial_id;
        let context = RequestContext {
            enforced: &trial.enforced(call.ordinal()),
            names: self.names(trial),
            defaults: self.lifecycle.upstream.model_card(trial_id).await.defaults,
            responses: trial.responses(),
            media: self.media,
            tool_strict_level: self.tool_strict_level,
            has_parser: self.lifecycle.upstream.has_parser(trial_id),
        };
        let text = dialect::text_of(&request.body)?;
        let UpstreamRequest { path, body, facts, adapter } =
            dialect::prepare(&request.endpoint, text, context)?;
        let text = body.map_or(Cow::Borrowed(text), Cow::Owned);
        Ok(TranslatedCall { path, text, facts, adapter })
    }

    /// Records the facts and the role of the request, and looks for recorded tokens that the conversation continues.
    async fn match_prefix(
        &self,
        call: &InFlightCall,
        text: &str,
        facts: CallFacts,
        adapter: &ResponseAdapter,
    ) -> Result<PlannedPrompt, AgentError> {
        let (trial, has_media) = (call.trial(), facts.has_media);
        let (trial_id, history) = (&trial.opened().facts.trial_id, trial.opened().history);
        let outline = ChatOutline::scan(text).ok();
        let role = self.roles.role_of(RoleRequest::of(&facts, outline.as_ref()));
        call.record(|recorder| recorder.requested(facts, role))?;
        let unplanned = PlannedPrompt { session: Session::OfTrial, by_ids: None };
        let Some(outline) = outline.filter(|_| adapter.is_chat() && history != History::Off) else {
            return Ok(unplanned);
        };
        let planned = self.prefix.plan(trial_id, trial.memory(), &outline, history, has_media).await;
        let Some(plan) = planned else { return Ok(unplanned) };
        let session = plan.session;
        let place = self.lifecycle.upstream.ids_place(trial_id);
        let given = |ids| prompt_ids::given(&outline.object, ids, place);
        let by_ids = plan.ids.as_ref().and_then(given).map(Bytes::from);
        call.record(|recorder| recorder.planned(plan))?;
        Ok(PlannedPrompt { session, by_ids })
    }

    /// Sends the request and records the head of its answer. A request by ids that upstream refuses is sent again with
    /// its messages: vLLM's error then has the words that agents expect, above all for a prompt that is too long.
    async fn send(
        &self,
        call: &InFlightCall,
        request: &AgentRequest<'_, CallEndpoint>,
        outgoing: &OutgoingCall,
    ) -> Result<Response<UpstreamBody>, AgentError> {
        let trial_id = &call.trial().opened().facts.trial_id;
        let send = |body| {
            let headers = &request.parts.headers;
            let session = Some(outgoing.session);
            self.lifecycle.upstream.send(trial_id, Method::POST, outgoing.path, headers, session, body)
        };
        let sent = match outgoing.by_ids.clone() {
            Some(by_ids) => {
                let sent = send(by_ids).await?;
                if REFUSALS.contains(&sent.status()) {
                    call.record(Recorder::ids_were_refused)?;
                    send(outgoing.body.clone()).await?
                } else {
                    sent
                }
            }
            None => send(outgoing.body.clone()).await?,
        };
        let is_stream = answer::is_stream(&sent);
        call.record(|recorder| recorder.answered(sent.status(), sent.body().served_by(), is_stream))?;
        Ok(sent)
    }
}

/// Returns the body with the messages. A request that needs no edit goes upstream as the agent's own bytes, without a copy.
fn body_of(request: &AgentRequest<'_, CallEndpoint>, text: Cow<'_, str>) -> Bytes {
    match text {
        Cow::Borrowed(_) => request.body.clone(),
        Cow::Owned(edited) => Bytes::from(edited),
    }
}

/// Runs the steps of a call until its trial is sealed.
async fn unless_sealed<T>(
    call: &InFlightCall,
    steps: Pin<&mut impl Future<Output = Result<T, AgentError>>>,
) -> Result<T, AgentError> {
    tokio::select! {
        done = steps => done,
        () = call.trial().sealed().cancelled() => Err(CallRefusal::Sealed.into()),
    }
}

/// Records a call as failed, unless it has ended already, and returns the error for the agent.
async fn failed(call: &InFlightCall, error: AgentError) -> AgentError {
    let Some(kept) = call.end(CallStatus::Failed, Some(error.to_string())) else { return error };
    kept.await.err().map_or(error, AgentError::from)
}
