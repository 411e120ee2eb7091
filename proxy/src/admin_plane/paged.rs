//! A page of a list, with the path of the next page in a `Link` header (RFC 8288, as on GitHub).

use std::num::NonZeroUsize;

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::Answer;
use super::openapi::Operation;

/// One page of a list that is sorted by name.
pub(crate) struct Paged<T> {
    pub(crate) items: Vec<T>,
    /// The path of the next page. `None` if this page is the last.
    pub(crate) next: Option<String>,
}

/// The default limit of items per answer.
pub(crate) fn page_size() -> NonZeroUsize {
    const { NonZeroUsize::new(1000).unwrap() }
}

impl<T: Serialize> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let next = self.next.map(|path| [(header::LINK, format!("<{path}>; rel=\"next\""))]);
        (next, Json(self.items)).into_response()
    }
}

impl<T: JsonSchema> Answer for Paged<T> {
    fn describe(operation: &mut Operation<'_>) {
        Json::<Vec<T>>::describe(operation);
        let words = "`<PATH>; rel=\"next\"` names the next page. Absent on the last page.";
        operation.header("200", "Link", words);
    }
}
