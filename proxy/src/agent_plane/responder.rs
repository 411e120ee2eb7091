//! Who answers the requests of agents: the agent plane of this process, or another node of the cluster.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::error::AgentError;
use super::forward::{FORWARDED, ForwardError, ForwardedBody, Forwarder};
use super::open_connections::OpenConnection;
use super::shard_roles::{HolderAddress, HolderName, NodeRole, ShardRoles};
use super::{AgentPlane, AnswerBody as AgentAnswer, BodyError, boxed, identity};
use crate::common::shard::ShardCount;
use crate::dialect::error_shape::ErrorShape;
use crate::upstream::AnswerBody;

/// How long a request waits for a node that holds the shard.
const HOLD: Duration = Duration::from_secs(15);
/// The pause before a node that was not reached is tried again.
const AGAIN: Duration = Duration::from_millis(250);
/// The seconds after which a client may repeat its request.
pub(crate) const RETRY_AFTER: u32 = 2;

/// Answers the requests of agents.
#[derive(Clone, Debug)]
pub(crate) enum Responder {
    /// The agent plane of this process.
    Own(Arc<AgentPlane>),
    /// The node that holds the shard of the trial, which may be this one.
    Cluster(ClusterDoor),
}

/// Passes requests to the nodes that hold the shards.
#[derive(Clone, Debug)]
pub(crate) struct ClusterDoor {
    roles: ShardRoles,
    forwarder: Forwarder,
}

/// The end of a request at a node that does not hold the shard.
#[derive(Debug)]
pub(crate) enum Passed<B> {
    /// The answer of the holder.
    Answer(Response<HolderBody>),
    /// This node holds the shard, and answers the request itself.
    Here(Box<Request<B>>, NodeRole),
    /// No node could be reached.
    NoHolder,
    /// The holder got the request and gave no answer, or is no longer the holder.
    Broken,
}

impl Responder {
    pub(crate) async fn answer(
        self,
        request: Request<Incoming>,
        connection: Arc<OpenConnection>,
    ) -> Result<Response<AgentAnswer>, Infallible> {
        match self {
            Self::Own(plane) => plane.answer(request, connection).await,
            Self::Cluster(door) => door.answer(request, connection).await,
        }
    }
}

impl ClusterDoor {
    async fn answer(
        self,
        request: Request<Incoming>,
        connection: Arc<OpenConnection>,
    ) -> Result<Response<AgentAnswer>, Infallible> {
        let shard = self.shard_of(&request);
        // The holder answers most requests, and its own path has no wait.
        let own = self.roles.of(shard).and_then(|role| match &*role.borrow() {
            NodeRole::Holder { agents, lease, name, .. } if lease.is_confirmed() => {
                Some((Arc::clone(agents), name.clone()))
            }
            NodeRole::Holder { .. } | NodeRole::Restoring | NodeRole::Standby(_) => None,
        });
        if let Some((agents, name)) = own {
            return answer_as(&name, agents, without_mark(request), connection).await;
        }
        connection.speaks();
        let path = identity::split_path(request.uri().path()).1.to_owned();
        let refusal = |message: &str| {
            let error = AgentError::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", message);
            let error = error.with_code("no_holder").retry_after(RETRY_AFTER);
            Ok(error.into_response(ErrorShape::of_path(&path)).map(boxed))
        };
        match self.pass(shard, request, |holder| holder.agents.clone()).await {
            Passed::Answer(answer) => Ok(answer.map(boxed)),
            Passed::Here(request, NodeRole::Holder { agents, name, .. }) => {
                answer_as(&name, agents, *request, connection).await
            }
            Passed::Here(..) | Passed::NoHolder => {
                refusal("the service has no active node at present; repeat the request")
            }
            Passed::Broken => {
                refusal("the active node of the service ended during the request; repeat the request")
            }
        }
    }

    /// Returns the shard of the trial that a request belongs to. A request without a usable key gets its error from any shard.
    fn shard_of(&self, request: &Request<Incoming>) -> u32 {
        let count = self.roles.count();
        if count == ShardCount::ONE {
            return 0;
        }
        let (in_path, _) = identity::split_path(request.uri().path());
        let key = identity::any_key_of(in_path, request.headers());
        key.map_or_else(|_| self.roles.own_or_first(), |key| count.of_key(&key))
    }
}

/// Answers a request as the holder of its shard, under the name of this node.
async fn answer_as(
    name: &HolderName,
    agents: Arc<AgentPlane>,
    request: Request<Incoming>,
    connection: Arc<OpenConnection>,
) -> Result<Response<AgentAnswer>, Infallible> {
    agents.answer(request, connection).await.map(|answer| name.sign(answer))
}

impl ClusterDoor {
    pub(crate) fn new(roles: ShardRoles) -> Self {
        Self { roles, forwarder: Forwarder::default() }
    }

    /// The part that this node has for each shard.
    pub(crate) fn roles(&self) -> &ShardRoles {
        &self.roles
    }

    /// Passes a request to the holder of a shard. Waits while there is none, up to [`HOLD`].
    pub(crate) async fn pass<B: ForwardedBody>(
        &self,
        shard: u32,
        request: Request<B>,
        plane: impl Fn(&HolderAddress) -> Authority,
    ) -> Passed<B> {
        let Some(of_shard) = self.roles.of(shard) else { return Passed::NoHolder };
        let was_forwarded = request.headers().contains_key(FORWARDED);
        let mut request = Box::new(without_mark(request));
        let mut role = of_shard.clone();
        let ends = Instant::now() + HOLD;
        loop {
            let current = role.borrow_and_update().clone();
            let waits_until = match current {
                NodeRole::Holder { ref lease, .. } if lease.is_confirmed() => {
                    return Passed::Here(request, current);
                }
                // Another node may have the shard. This one notices that within a second, and then ends.
                NodeRole::Holder { .. } => Instant::now() + AGAIN,
                // The node that forwarded the request has an old view, and tries again.
                NodeRole::Standby(_) if was_forwarded => return Passed::NoHolder,
                NodeRole::Restoring | NodeRole::Standby(None) => ends,
                NodeRole::Standby(Some(holder)) => {
                    let to = plane(&holder);
                    // A holder that is paused or unreachable accepts the request and never answers.
                    let mut replaced = Box::pin(replaced(of_shard.clone(), holder));
                    let forwarded = tokio::select! {
                        forwarded = self.forwarder.forward(*request, shard, &to) => forwarded,
                        () = &mut replaced => return Passed::Broken,
                    };
                    match forwarded {
                        Ok(answer) => {
                            return Passed::Answer(answer.map(|body| HolderBody { body, replaced }));
                        }
                        Err(ForwardError::Broken(error)) => {
                            tracing::debug!(%error, "a forwarded request got no answer");
                            return Passed::Broken;
                        }
                        Err(ForwardError::Unreached(back)) => request = back,
                    }
                    Instant::now() + AGAIN
                }
            };
            // A new holder ends the wait.
            let _ = timeout_at(waits_until.min(ends), role.changed()).await;
            if Instant::now() >= ends {
                return Passed::NoHolder;
            }
        }
    }
}

/// Resolves when another node is the holder, or none.
async fn replaced(mut role: watch::Receiver<NodeRole>, holder: HolderAddress) {
    let is_other = |role: &NodeRole| !matches!(role, NodeRole::Standby(Some(current)) if *current == holder);
    // The role ends with the node, and its connections with it.
    let _ = role.wait_for(is_other).await;
}

/// The body of a holder's answer. It breaks off when another node becomes the holder, because the old one may be paused or
/// unreachable, and then never ends it.
pub(crate) struct HolderBody {
    body: AnswerBody,
    replaced: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for HolderBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HolderBody").field("body", &self.body).finish_non_exhaustive()
    }
}

impl Body for HolderBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // What the holder has sent comes first: a whole answer stays whole.
        if let Poll::Ready(data) = self.body.poll_data(cx) {
            return Poll::Ready(data.map(|data| data.map(Frame::data).map_err(Into::into)));
        }
        self.replaced
            .as_mut()
            .poll(cx)
            .map(|()| Some(Err("another node of the cluster has taken over".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.left().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Removes the mark of another node, which no upstream gets.
pub(crate) fn without_mark<B>(mut request: Request<B>) -> Request<B> {
    request.headers_mut().remove(FORWARDED);
    request
}
