//! An agent's request with its body.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use hyper::body::Incoming;
use jiff::Timestamp;

use crate::agent_plane::body_budget::{BodyBudget, Reservation};
use crate::agent_plane::error::AgentError;
use crate::agent_plane::request_body;
use crate::common::clock;
use crate::trial::Trial;

/// The head of a request, and its trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestHead<'a> {
    pub(super) trial: &'a Arc<Trial>,
    /// The path without the trial's key.
    pub(super) path: &'a str,
    pub(super) parts: &'a Parts,
}

/// A request whose body has arrived. `E` is the endpoint that it calls.
#[derive(Debug)]
pub(super) struct AgentRequest<'a, E> {
    pub(super) trial: &'a Arc<Trial>,
    pub(super) path: &'a str,
    pub(super) parts: &'a Parts,
    pub(super) endpoint: E,
    pub(super) body: Bytes,
    /// The time at which the head arrived.
    pub(super) received_at: Timestamp,
    /// The body's share of the memory budget, released when the answer's head is ready.
    _memory: Reservation,
}

impl<'a> RequestHead<'a> {
    /// Reads the body within the trial's limit and the proxy's memory budget.
    pub(super) async fn read<E>(
        self,
        endpoint: E,
        body: &mut Incoming,
        budget: &Arc<BodyBudget>,
    ) -> Result<AgentRequest<'a, E>, AgentError> {
        // Taken before the body is read, so that the record covers the whole request.
        let received_at = clock::now();
        self.check_encoding()?;
        let opened = self.trial.opened();
        let mut memory = Reservation::of(budget, &opened.facts.trial_id);
        let body = request_body::read(body, opened.limits.max_body_bytes, &mut memory).await?;
        let Self { trial, path, parts } = self;
        Ok(AgentRequest { trial, path, parts, endpoint, body, received_at, _memory: memory })
    }

    /// Rejects a compressed body: the proxy edits and records the request as JSON.
    fn check_encoding(&self) -> Result<(), AgentError> {
        let headers = &self.parts.headers;
        let encoding = headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes).unwrap_or_default();
        if encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity") {
            return Ok(());
        }
        let encoding = String::from_utf8_lossy(encoding);
        let message = format!("the request body has content-encoding {encoding}: send it without any");
        Err(AgentError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "BadRequestError", message))
    }
}
