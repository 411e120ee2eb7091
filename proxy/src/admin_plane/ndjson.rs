//! Answers with one JSON object per line.

use std::marker::PhantomData;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::Answer;
use super::openapi::Operation;

/// An NDJSON answer. `T` is the type of a line.
pub(super) struct Lines<T> {
    body: Body,
    line: PhantomData<T>,
}

impl<T: Serialize + Send + 'static> Lines<T> {
    /// Serialises each item when the client reads it.
    pub(super) fn of(items: Vec<T>) -> Self {
        let lines = items.into_iter().map(|item| {
            let mut line = serde_json::to_vec(&item)?;
            line.push(b'\n');
            Ok::<_, serde_json::Error>(Bytes::from(line))
        });
        Self::of_body(Body::from_stream(stream::iter(lines)))
    }
}

impl<T> Lines<T> {
    /// Takes a body whose lines are already JSON of `T`.
    pub(super) fn of_body(body: Body) -> Self {
        Self { body, line: PhantomData }
    }
}

impl<T> IntoResponse for Lines<T> {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/x-ndjson")], self.body).into_response()
    }
}

impl<T: JsonSchema> Answer for Lines<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.answer::<T>("200", "One JSON object per line.", "application/x-ndjson");
    }
}
