//! The admin plane: what runners and trainers call. It has a socket of its own, which no agent reaches.
//!
//! Its errors are [`AdminError`]s, all of one shape ([`crate::api::ErrorBody`]): an error that a handler returns says
//! what was wrong, where, and what to do; anything else is a defect.

pub(crate) mod admission;
pub(crate) mod causes;
mod error;
mod groups;
mod policy;
pub(crate) mod public_url;
mod rollouts;
mod slow_reader;
mod trial_reads;
mod trials;
mod upstreams;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use tokio_util::sync::CancellationToken;

use self::error::AdminError;
pub(crate) use self::slow_reader::PatientListener;
use crate::admin_plane::admission::Admission;
use crate::admin_plane::public_url::PublicUrl;
use crate::common::metrics::Metrics;
use crate::lifecycle::open::Lifecycle;

/// What every handler works with.
#[derive(Debug)]
pub(crate) struct AdminPlane {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) public_url: PublicUrl,
    pub(crate) admission: Admission,
    /// Set once the proxy takes no further call.
    pub(crate) draining: CancellationToken,
    pub(crate) metrics: Arc<Metrics>,
}

/// Every route (design: one page of HTTP is the whole contract).
pub(crate) fn router(plane: AdminPlane) -> Router {
    let plane = Arc::new(plane);
    let guarded = Router::new()
        .route("/v1/trials", post(trials::open).get(trial_reads::list))
        .route("/v1/trials/{id}", get(trial_reads::status))
        .route("/v1/trials/{id}/seal", post(trials::seal))
        .route("/v1/trials/{id}/reward", put(trials::reward))
        .route("/v1/trials/{id}/calls", get(trial_reads::calls))
        .route("/v1/trials/{id}/rollout", get(trial_reads::rollout))
        .route("/v1/rollouts", get(rollouts::rollouts))
        .route("/v1/groups", get(groups::list))
        .route("/v1/groups/{id}", get(groups::status))
        .route("/v1/groups/{id}/close", post(groups::close))
        .route("/v1/causes", get(trial_reads::causes))
        .route("/v1/upstreams", post(upstreams::add).get(upstreams::list))
        .route("/v1/upstreams/{id}", delete(upstreams::remove))
        .route("/v1/policy", post(policy::set).get(policy::status))
        .route("/v1/policy/pause", post(policy::pause))
        .route("/v1/policy/resume", post(policy::resume))
        .layer(middleware::from_fn_with_state(Arc::clone(&plane), admission::admit));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .merge(guarded)
        .fallback(|request: Request| async move {
            AdminError::no_such_path(request.method(), request.uri().path())
        })
        .method_not_allowed_fallback(|request: Request| async move {
            AdminError::no_such_path(request.method(), request.uri().path())
        })
        .with_state(plane)
}

async fn ready(State(plane): State<Arc<AdminPlane>>) -> Response {
    if plane.draining.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining: calls under way finish, no new one is taken\n")
            .into_response();
    }
    if let Err(error) = plane.lifecycle.store.check() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("no new call is taken: {error}\n")).into_response();
    }
    "ready\n".into_response()
}

/// Numbers tell nothing that needs a token, and scrapers rarely have one.
async fn metrics(State(plane): State<Arc<AdminPlane>>) -> Result<Response, AdminError> {
    plane.metrics.stand(plane.lifecycle.feed.ledger().counts());
    let text = plane.metrics.text().map_err(|error| AdminError::internal(error.to_string()))?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}
