//! An answer in the agent's form, stored for a client that marks its retries ([`crate::trial::retry`]).

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use rolltap_rollout::ids::CallId;

use crate::trial::call::SharedDurable;

/// The head of an answer.
#[derive(Clone, Debug)]
pub(crate) struct ReplayHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// An answer, complete or not.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) head: ReplayHead,
    /// The body, in the pieces that were made for the agent.
    pub(crate) pieces: Vec<Bytes>,
    /// The record of the answer. `None` until the answer is complete.
    pub(crate) record: Option<ReplayRecord>,
}

/// The record of an answer.
#[derive(Clone, Debug)]
pub(crate) struct ReplayRecord {
    pub(crate) call_id: CallId,
    /// Resolves once the record is durable.
    pub(crate) kept: SharedDurable,
}
