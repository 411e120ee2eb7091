//! The admin plane of a node. It answers for all shards of the cluster: some requests concern one shard, and others the sum
//! of all shards.

mod cursor;
mod everywhere;
mod feed;
mod lists;
mod locations;
mod placement;
mod shard_feed;
mod trials;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use tower::ServiceExt;

use self::locations::Locations;
use self::placement::Placement;
use crate::admin_plane::error::AdminError;
use crate::agent_plane::forward::FORWARDED;
use crate::agent_plane::responder::{ClusterDoor, Passed, RETRY_AFTER, without_mark};
use crate::agent_plane::shard_roles::NodeRole;
use crate::common::shard::ShardCount;

/// The largest body of a request that concerns several shards. It is that of the admin plane.
const LARGEST_REQUEST: usize = 2 << 20;
/// The largest answer of a shard that is merged with others: a list of all groups.
const LARGEST_LIST: usize = 1 << 30;

/// The admin plane of a node.
#[derive(Clone)]
pub(super) struct AdminDoor {
    door: ClusterDoor,
    locations: Arc<Locations>,
    /// The number of trials without a name that were opened here, which go to each shard in turn.
    nameless: Arc<AtomicU32>,
}

/// A request whose body was read, so that several shards can get it.
struct WholeRequest {
    parts: Parts,
    body: Bytes,
}

/// The answer to a request that does not succeed: that of a shard, or of this node.
#[derive(Debug)]
struct Refusal(Box<Response>);

/// The answer of a shard that was read whole.
struct WholeAnswer {
    headers: HeaderMap,
    body: Bytes,
}

/// Returns a router that answers every path.
pub(super) fn router(door: ClusterDoor) -> Router {
    let admin = AdminDoor { door, locations: Arc::default(), nameless: Arc::default() };
    Router::new().fallback(answer).with_state(admin)
}

async fn answer(State(admin): State<AdminDoor>, request: Request) -> Response {
    let count = admin.count();
    let own = admin.door.roles().own_or_first();
    // Probes and scrapers ask about this process, and not about the holder of a shard.
    match (request.uri().path(), admin.held(own)) {
        ("/healthz" | "/readyz" | "/metrics", Some(plane)) => return answer_of(plane, request).await,
        ("/healthz", None) => return "ok\n".into_response(),
        ("/readyz", None) => return admin.readiness(),
        _ => {}
    }
    if count == ShardCount::ONE {
        return admin.ask(0, request).await;
    }
    if let Some(shard) = forwarded_to(request.headers()) {
        return admin.ask(shard, request).await;
    }
    let answer = match Placement::of(request.method(), request.uri().path(), count) {
        Placement::Any => Ok(admin.ask(own, request).await),
        Placement::Shard(shard) => Ok(admin.ask(shard, request).await),
        Placement::Opening => admin.open(request).await,
        Placement::Trial(id) => admin.find(&id, request).await,
        Placement::Sum(sum) => admin.sum(sum, request).await,
        Placement::Change(change) => admin.change(change, request).await,
        Placement::Feed => admin.feed(request).await,
    };
    answer.unwrap_or_else(|Refusal(answer)| *answer)
}

/// Returns the shard for which another node forwarded a request.
fn forwarded_to(headers: &HeaderMap) -> Option<u32> {
    headers.get(FORWARDED)?.to_str().ok()?.parse().ok()
}

impl AdminDoor {
    fn count(&self) -> ShardCount {
        self.door.roles().count()
    }

    fn shards(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.count().get()
    }

    /// The admin plane of a shard that this node holds, also if its lease is not confirmed at present.
    fn held(&self, shard: u32) -> Option<Router> {
        match &*self.door.roles().of(shard)?.borrow() {
            NodeRole::Holder { admin, .. } => Some(admin.clone()),
            NodeRole::Restoring | NodeRole::Standby(_) => None,
        }
    }

    /// A node without a shard is ready if it knows a node for each shard.
    fn readiness(&self) -> Response {
        let mut holders = Vec::new();
        for shard in self.shards() {
            match self.door.roles().of(shard).map(|role| role.borrow().clone()) {
                Some(NodeRole::Standby(Some(holder))) => {
                    holders.push(format!("standby: {} holds shard {shard}\n", holder.agents));
                }
                Some(NodeRole::Holder { .. }) => {}
                Some(NodeRole::Restoring | NodeRole::Standby(None)) | None => {
                    let reason = format!("standby: no node of the cluster holds shard {shard}\n");
                    return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
                }
            }
        }
        holders.concat().into_response()
    }

    /// Returns the answer of a shard. Waits if no node holds it.
    async fn ask(&self, shard: u32, request: Request) -> Response {
        let of_shard = self.door.roles().of(shard).map(|role| role.borrow().clone());
        if let Some(NodeRole::Holder { admin, lease, .. }) = of_shard
            && lease.is_confirmed()
        {
            return answer_of(admin, without_mark(request)).await;
        }
        match self.door.pass(shard, request, |holder| holder.admin.clone()).await {
            Passed::Answer(answer) => answer.map(Body::new).into_response(),
            Passed::Here(request, NodeRole::Holder { admin, .. }) => answer_of(admin, *request).await,
            Passed::Here(..) | Passed::NoHolder => unavailable(format!(
                "no node of the cluster holds shard {shard} at present; repeat the request"
            )),
            Passed::Broken => unavailable(format!(
                "the node that holds shard {shard} ended during the request, which may have taken effect; repeat the request"
            )),
        }
    }

    /// Returns the answers of all shards, in the order of their numbers.
    ///
    /// # Errors
    /// A shard did not succeed.
    async fn ask_all(&self, request: &WholeRequest) -> Result<Vec<WholeAnswer>, Refusal> {
        let answers = join_all(self.shards().map(|shard| self.ask_whole(shard, request))).await;
        answers.into_iter().collect()
    }

    async fn ask_whole(&self, shard: u32, request: &WholeRequest) -> Result<WholeAnswer, Refusal> {
        let answer = self.ask(shard, request.copy()).await;
        if !answer.status().is_success() {
            return Err(answer.into());
        }
        let (parts, body) = answer.into_parts();
        match axum::body::to_bytes(body, LARGEST_LIST).await {
            Ok(body) => Ok(WholeAnswer { headers: parts.headers, body }),
            Err(error) => Err(unavailable(format!("the answer of shard {shard} broke off: {error}")).into()),
        }
    }

    /// The shard of the next trial without a name and without a group.
    fn next_shard(&self) -> u32 {
        self.nameless.fetch_add(1, Ordering::Relaxed) % self.count().get()
    }
}

impl WholeRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// The body is too large, or breaks off.
    async fn read(request: Request) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        match axum::body::to_bytes(body, LARGEST_REQUEST).await {
            Ok(body) => Ok(Self { parts, body }),
            Err(error) => {
                let message = format!(
                    "the body of the request cannot be read: {error}; at most {LARGEST_REQUEST} bytes"
                );
                Err(AdminError::invalid(message).into())
            }
        }
    }

    fn copy(&self) -> Request {
        Request::from_parts(self.parts.clone(), self.body.clone().into())
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        self.0.status()
    }
}

impl From<Response> for Refusal {
    fn from(answer: Response) -> Self {
        Self(Box::new(answer))
    }
}

impl From<AdminError> for Refusal {
    fn from(error: AdminError) -> Self {
        error.into_response().into()
    }
}

async fn answer_of(admin: Router, request: Request) -> Response {
    match admin.oneshot(request).await {
        Ok(answer) => answer,
        Err(error) => match error {},
    }
}

fn unavailable(message: impl Into<String>) -> Response {
    let mut answer = AdminError::unavailable(message).into_response();
    answer.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER.into());
    answer
}
