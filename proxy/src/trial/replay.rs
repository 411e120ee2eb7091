//! An answer as its agent is to get it, kept for a client that marks its retries ([`crate::trial::retry`]).

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::trial::call::SharedKept;

/// The head of an answer.
#[derive(Clone, Debug)]
pub(crate) struct ReplayHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// An answer, or what has come of it.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) head: ReplayHead,
    /// Its body in the pieces that were made for the agent.
    pub(crate) pieces: Vec<Bytes>,
    /// The wait for its record; none until it is whole.
    pub(crate) kept: Option<SharedKept>,
}
