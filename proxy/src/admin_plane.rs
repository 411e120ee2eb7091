//! The admin plane: the HTTP API of runners and trainers. It has a socket of its own, which agents cannot reach.
//!
//! Each handler parses a request, calls the part of the proxy that does the work, and answers. [`routes`] lists the
//! endpoints. Each error is an [`AdminError`] of one shape ([`crate::api::ErrorBody`]) and contains the problem, its
//! place, and the remedy.

pub(crate) mod admission;
pub(crate) mod audit;
mod basic_auth;
mod call_item;
mod causes;
mod endpoint;
pub(crate) mod error;
mod groups;
pub(crate) mod guard;
mod ndjson;
mod openapi;
mod opener_span;
mod operations;
pub(crate) mod paged;
mod pages;
mod policy;
mod prepare;
pub(crate) mod role;
mod rollouts;
mod routes;
mod slow_reader;
pub(crate) mod submissions;
pub(crate) mod token_rule;
pub(crate) mod tokens;
mod trial_reads;
mod trials;
mod upstreams;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use tokio_util::sync::CancellationToken;

use self::error::AdminError;
pub use self::openapi::openapi;
pub use self::pages::PAGES_PATH;
pub(crate) use self::slow_reader::PatientListener;
use crate::admin_plane::guard::AdminGuard;
use crate::admin_plane::submissions::SubmissionDesk;
use crate::agent_plane::public_url::PublicUrl;
use crate::common::metrics::Metrics;
use crate::common::shard::Shard;
use crate::lifecycle::open::Lifecycle;

/// The state that every handler gets.
#[derive(Debug)]
pub(crate) struct AdminPlane {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) public_url: PublicUrl,
    /// The shard of every trial of this proxy.
    pub(crate) shard: Shard,
    pub(crate) guard: AdminGuard,
    /// Cancelled when the proxy begins to shut down and accepts no further call.
    pub(crate) draining: CancellationToken,
    pub(crate) metrics: Arc<Metrics>,
    /// Passes submissions to the service. `None` without the service.
    pub(crate) submissions: Option<SubmissionDesk>,
}

/// Returns the router with every endpoint of [`routes`], and with the web pages.
pub(crate) fn router(plane: AdminPlane, pages: Option<Router>) -> Router {
    let plane = Arc::new(plane);
    let all = routes::all::<()>().into_iter();
    let router = all.fold(Router::new(), |router, endpoint| endpoint.add_to(router, &plane));
    let router = match pages {
        Some(pages) => router.nest_service(PAGES_PATH, pages::guarded_pages(pages, &plane)),
        None => router,
    };
    router
        .fallback(|request: Request| async move {
            AdminError::no_such_path(request.method(), request.uri().path())
        })
        .method_not_allowed_fallback(|request: Request| async move {
            AdminError::no_such_path(request.method(), request.uri().path())
        })
        .with_state(plane)
}
