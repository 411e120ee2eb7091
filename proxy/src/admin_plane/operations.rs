//! Health and metrics of the proxy, for operators.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::AdminPlane;
use super::endpoint::Answer;
use super::error::AdminError;
use super::openapi::Operation;
use crate::common::metrics::OperationState;
use crate::lifecycle::open::Lifecycle;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The reason why the proxy accepts no new call: 503 with the reason as text.
pub(super) struct NotReady(String);

/// The answer with all metrics as text.
pub(super) struct OpenMetrics(String);

pub(super) async fn live() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(plane): State<Arc<AdminPlane>>) -> Result<&'static str, NotReady> {
    if plane.draining.is_cancelled() {
        return Err(NotReady("draining: calls under way finish, no new one is taken\n".to_owned()));
    }
    if let Err(error) = plane.lifecycle.store.check() {
        return Err(NotReady(format!("no new call is taken: {error}\n")));
    }
    Ok("ready\n")
}

pub(super) async fn metrics(State(plane): State<Arc<AdminPlane>>) -> Result<OpenMetrics, AdminError> {
    // Gauges of the feed are read here, so that no change of the ledger has to update them.
    plane.metrics.stand(plane.lifecycle.feed.ledger().counts());
    let Lifecycle { upstream, store, .. } = &plane.lifecycle;
    plane.metrics.operation(OperationState {
        can_capture: store.check().is_ok(),
        calls_in_flight: upstream.load().in_flight(),
        calls_held: upstream.load().held(),
        upstreams: upstream.counts(),
    });
    plane.metrics.text().map(OpenMetrics).map_err(|error| AdminError::internal(error.to_string()))
}

impl IntoResponse for NotReady {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, self.0).into_response()
    }
}

impl Answer for NotReady {
    fn describe(operation: &mut Operation<'_>) {
        operation.answer::<str>(
            "503",
            "The reason why no new call is accepted.",
            "text/plain; charset=utf-8",
        );
    }
}

impl IntoResponse for OpenMetrics {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, OPEN_METRICS)], self.0).into_response()
    }
}

impl Answer for OpenMetrics {
    fn describe(operation: &mut Operation<'_>) {
        operation.answer::<str>("200", "The metrics.", OPEN_METRICS);
    }
}
