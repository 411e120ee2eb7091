//! Refuses requests of web pages of other hosts, and forbids pages to load or run anything that is not of this server.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use rolltap_proxy::Admission;

/// The headers of every answer. Agents write much of what the pages show: the policy makes sure that nothing of it runs,
/// even if a template did not escape it.
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; \
             base-uri 'none'; frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

/// Middleware of all routes: adds [`HEADERS`] to every answer.
pub(super) async fn with_security_headers(request: Request, next: Next) -> Response {
    with_headers(next.run(request).await)
}

fn with_headers(mut response: Response) -> Response {
    response.headers_mut().extend(HEADERS);
    response
}

/// Middleware of the viewer's own server: admits programs of this machine only.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    let admission = Admission { server: "the viewer", flag: "none exists", token: None };
    match admission.check(&request) {
        Ok(()) => next.run(request).await,
        Err(refused) => with_headers((StatusCode::FORBIDDEN, refused.to_string()).into_response()),
    }
}
