//! Who may call the admin plane.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::AdminPlane;
use super::error::AdminError;
use crate::admin_plane::admission::NotAdmitted;

pub(super) async fn admit(State(plane): State<Arc<AdminPlane>>, request: Request, next: Next) -> Response {
    match plane.admission.check(&request) {
        Ok(()) => next.run(request).await,
        Err(NotAdmitted::Unauthorized(message)) => AdminError::unauthorized(message).into_response(),
        Err(NotAdmitted::Forbidden(message)) => AdminError::forbidden(message).into_response(),
    }
}
