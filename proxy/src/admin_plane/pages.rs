//! Web pages on the admin plane, for people with a browser.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use futures_util::StreamExt;
use http::header;

use super::AdminPlane;
use super::guard::{GuardedRoute, guard};
use super::role::AdminRole;

/// The path of the first web page.
pub const PAGES_PATH: &str = "/ui";

/// The media type of a stream of events.
const EVENTS: &str = "text/event-stream";

/// Returns web pages behind the guard of the role `read`. Their streams of events, which never end by themselves, end when
/// the proxy drains.
pub(super) fn guarded_pages(pages: Router, plane: &Arc<AdminPlane>) -> Router {
    let (plane, draining) = (Arc::clone(plane), plane.draining.clone());
    let pages = pages.layer(map_response(move |response: Response| {
        let draining = draining.clone();
        async move {
            let is_events = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == EVENTS);
            if !is_events {
                return response;
            }
            let until_drained = |body: Body| {
                Body::from_stream(body.into_data_stream().take_until(draining.cancelled_owned()))
            };
            response.map(until_drained)
        }
    }));
    let (role, method, path) = (AdminRole::Read, "GET", PAGES_PATH);
    let route =
        GuardedRoute { plane, role, admits_key: false, method, path, is_recorded: false, is_page: true };
    pages.layer(from_fn_with_state(route, guard))
}
