//! The agent plane: the HTTP API of agents, and the only API that they can reach.
//!
//! A request names its trial by a key ([`identity`]) and its endpoint by a path ([`crate::dialect::route`]). The steps
//! of a model call are in [`call`].

mod answer;
pub(crate) mod body_budget;
mod call;
pub(crate) mod cors;
mod count;
pub(crate) mod error;
pub(crate) mod forward;
pub(crate) mod gateway_page;
pub(crate) mod identity;
pub(crate) mod open_connections;
pub(crate) mod public_url;
mod refused_connection;
mod request;
mod request_body;
pub(crate) mod responder;
pub(crate) mod server;
pub(crate) mod shard_roles;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tower::{Layer, Service, service_fn};

use crate::agent_plane::answer::{head_for_agent, read_answer};
use crate::agent_plane::body_budget::BodyBudget;
use crate::agent_plane::cors::AllowedOrigins;
use crate::agent_plane::error::AgentError;
use crate::agent_plane::open_connections::OpenConnection;
use crate::agent_plane::public_url::PublicUrl;
use crate::agent_plane::request::RequestHead;
use crate::common::model_aliases::{ModelAliases, Names};
use crate::common::refusal_counts::RefusalCounts;
use crate::dialect::ToolStrictLevel;
use crate::dialect::chat::media::Fetching;
use crate::dialect::error_shape::ErrorShape;
use crate::dialect::route::Endpoint;
use crate::lifecycle::open::Lifecycle;
use crate::prefix::ExactPrefix;
use crate::roles::RoleRules;
use crate::trial::{CallRefusal, Trial};

/// The header by which a client, vLLM and their logs identify one request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The error of an answer's body. Its cause is in the record of the call by then.
type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of every answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BodyError>;

/// The state that every connection of the agent plane uses.
#[derive(Debug)]
pub(crate) struct AgentPlane {
    pub(crate) lifecycle: Lifecycle,
    /// The URL by which agents call, whose path may come before the paths below.
    pub(crate) public_url: PublicUrl,
    /// Whether an unknown key opens a trial.
    pub(crate) opens_for_any_key: bool,
    pub(crate) model_aliases: ModelAliases,
    pub(crate) prefix: Arc<ExactPrefix>,
    /// The rules that give each call its role.
    pub(crate) roles: RoleRules,
    /// The longest time in which upstream may send nothing.
    pub(crate) longest_silence: Duration,
    /// Whether a request may make upstream fetch media.
    pub(crate) media: Fetching,
    pub(crate) tool_strict_level: ToolStrictLevel,
    pub(crate) allowed_origins: AllowedOrigins,
    /// Limits the memory of request bodies in flight.
    pub(crate) body_budget: Arc<BodyBudget>,
    pub(crate) refusals: RefusalCounts,
}

impl AgentPlane {
    /// Answers one request of an agent, or of the browser in which the agent runs.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<OpenConnection>,
    ) -> Result<Response<AnswerBody>, Infallible> {
        let Some(cors) = self.allowed_origins.layer_for(request.headers()) else {
            return self.answer_agent(request, &connection).await;
        };
        let (plane, connection) = (&self, &connection);
        let answer = async |request| plane.answer_agent(request, connection).await;
        cors.layer(service_fn(answer)).call(request).await
    }

    async fn answer_agent(
        &self,
        request: Request<Incoming>,
        connection: &OpenConnection,
    ) -> Result<Response<AnswerBody>, Infallible> {
        let (parts, mut body) = request.into_parts();
        let (key, path) = identity::split_path(self.public_url.without_prefix(parts.uri.path()));
        let request_id = parts.headers.get(&REQUEST_ID).cloned();
        let answered = self.route(key, path, &parts, &mut body, connection).await;
        let (mut answer, request_id) = match answered {
            Ok(answer) => (answer, request_id),
            Err(error) => {
                // The answer must wait for the rest of the body: see `discard`.
                request_body::discard(&parts.headers, &mut body).await;
                self.refusals.call(error.code());
                let error = error.without_secrets(&self.lifecycle.redaction);
                let refusal = error.into_response(ErrorShape::of_path(path)).map(boxed);
                (refusal, request_id.or_else(new_request_id))
            }
        };
        // vLLM returns the id only if it was started with `--enable-request-id-headers`.
        if let Some(request_id) = request_id {
            answer.headers_mut().entry(&REQUEST_ID).or_insert(request_id);
        }
        Ok(answer)
    }

    async fn route(
        &self,
        key: Option<&str>,
        path: &str,
        parts: &Parts,
        body: &mut Incoming,
        connection: &OpenConnection,
    ) -> Result<Response<AnswerBody>, AgentError> {
        let trial = &self.trial(key, &parts.headers).await?;
        connection.speaks();
        let head = RequestHead { trial, path, parts };
        match Endpoint::of(&parts.method, path, parts.uri.query())? {
            Endpoint::Models => self.models(trial, parts).await,
            Endpoint::Call(endpoint) => {
                let request = head.read(endpoint, body, &self.body_budget).await?;
                self.call(&request).await
            }
            Endpoint::Count(endpoint) => {
                // The trial's limit of requests in flight holds before the body takes memory.
                let _counting = trial.begin_count()?;
                let request = head.read(endpoint, body, &self.body_budget).await?;
                self.count(&request).await
            }
        }
    }

    async fn trial(&self, key: Option<&str>, headers: &HeaderMap) -> Result<Arc<Trial>, AgentError> {
        if !self.opens_for_any_key {
            return Ok(self.lifecycle.trials.by_key(&identity::key_of(key, headers)?)?);
        }
        let key = identity::any_key_of(key, headers)?;
        Ok(self.lifecycle.implicit(&key).await?)
    }

    async fn models(&self, trial: &Trial, parts: &Parts) -> Result<Response<AnswerBody>, AgentError> {
        if trial.sealed().is_cancelled() {
            return Err(CallRefusal::Sealed.into());
        }
        let trial_id = &trial.opened().facts.trial_id;
        let sent = self.lifecycle.upstream.send(
            trial_id,
            Method::GET,
            "/v1/models",
            &parts.headers,
            None,
            Bytes::new(),
        );
        let (head, body) = sent.await?.into_parts();
        let head = head_for_agent(head);
        let names = self.names(trial);
        let models = read_answer(body, self.longest_silence).await?;
        if !head.status.is_success() || names.are_none() {
            return Ok(Response::from_parts(head, whole(models)));
        }
        let with_aliases = names.listed(&models).map(Bytes::from);
        Ok(Response::from_parts(head, whole(with_aliases.unwrap_or(models))))
    }

    /// Returns the model aliases that apply to a trial.
    pub(crate) fn names<'a>(&'a self, trial: &'a Trial) -> Names<'a> {
        Names { of_trial: &trial.opened().model_aliases, of_proxy: &self.model_aliases }
    }
}

/// Returns a new id for an error of the proxy, if the request has no id.
fn new_request_id() -> Option<HeaderValue> {
    HeaderValue::from_str(&uuid::Uuid::now_v7().simple().to_string()).ok()
}

/// Boxes a body for an agent.
pub(crate) fn boxed<B>(body: B) -> AnswerBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Returns a body for an agent from its bytes.
pub(crate) fn whole(body: impl Into<Bytes>) -> AnswerBody {
    boxed(Full::new(body.into()))
}
