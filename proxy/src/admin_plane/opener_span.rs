//! The span of the runner that opens a trial, from the header `traceparent` (W3C Trace Context).

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::endpoint::Argument;
use super::openapi::Operation;
use crate::traces::{SpanPlace, TRACEPARENT};

/// The span that a request names. `None` if it names none, or an invalid one.
pub(super) struct OpenerSpan(pub(super) Option<SpanPlace>);

impl<S: Sync> FromRequestParts<S> for OpenerSpan {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(SpanPlace::of_headers(&parts.headers)))
    }
}

impl Argument for OpenerSpan {
    fn describe(operation: &mut Operation<'_>) {
        operation.header_parameter(
            TRACEPARENT.as_str(),
            "The span of the runner, in the form of W3C Trace Context. The spans of the trial are below it.",
        );
    }
}
