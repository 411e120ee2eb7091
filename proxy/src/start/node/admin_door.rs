//! The admin plane of a node: its own when it holds the shard, and otherwise that of the holder.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http::{StatusCode, header};
use tower::ServiceExt;

use crate::agent_plane::responder::{ClusterDoor, NodeRole, Passed, RETRY_AFTER, without_mark};
use crate::api::{ErrorBody, ErrorDetail};

type Door = ClusterDoor<Body>;

/// Returns a router that answers every path.
pub(super) fn router(door: Door) -> Router {
    Router::new().fallback(answer).with_state(door)
}

async fn answer(State(door): State<Door>, request: Request) -> Response {
    if let NodeRole::Holder { admin, .. } = door.role() {
        return own(admin, without_mark(request)).await;
    }
    match request.uri().path() {
        // Probes ask about this process, and not about the holder.
        "/healthz" => return "ok\n".into_response(),
        "/readyz" => return readiness(&door.role()),
        _ => {}
    }
    match door.pass(request, |holder| holder.admin.clone()).await {
        Passed::Answer(answer) => answer.map(Body::new).into_response(),
        Passed::Here(request, NodeRole::Holder { admin, .. }) => own(admin, *request).await,
        Passed::Here(..) | Passed::NoHolder => {
            unavailable("no node of the cluster holds the shard at present; repeat the request")
        }
        Passed::Broken => unavailable(
            "the node that holds the shard ended during the request, which may have taken effect; repeat the request",
        ),
    }
}

async fn own(admin: Router, request: Request) -> Response {
    match admin.oneshot(request).await {
        Ok(answer) => answer,
        Err(error) => match error {},
    }
}

/// A standby is ready if it knows a node to forward requests to.
fn readiness(role: &NodeRole) -> Response {
    match role {
        NodeRole::Standby(None) => {
            let reason = "standby: no node of the cluster holds the shard\n";
            (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
        }
        NodeRole::Standby(Some(holder)) => {
            format!("standby: {} holds the shard\n", holder.agents).into_response()
        }
        NodeRole::Holder { .. } => "ready\n".into_response(),
    }
}

fn unavailable(message: &str) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let detail =
        ErrorDetail { message: message.to_owned(), kind: "unavailable".to_owned(), code: status.as_u16() };
    (status, [(header::RETRY_AFTER, RETRY_AFTER.to_string())], Json(ErrorBody { error: detail }))
        .into_response()
}
