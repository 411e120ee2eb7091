//! An answer as its agent got it, kept for a client that marks its retries ([`crate::retry`]).

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::call_under_way::SharedKept;

/// The head of an answer.
#[derive(Clone, Debug)]
pub(crate) struct ReplayHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// An answer, or what has been sent of it.
#[derive(Debug)]
pub(crate) struct Replay {
    head: ReplayHead,
    sent: Vec<Bytes>,
    /// Set once it is whole.
    kept: Option<SharedKept>,
}

impl Replay {
    pub(crate) fn new(head: ReplayHead) -> Self {
        Self { head, sent: Vec::new(), kept: None }
    }

    pub(crate) fn head(&self) -> &ReplayHead {
        &self.head
    }

    /// A piece of the answer is on its way to the agent.
    pub(crate) fn sent(&mut self, piece: &Bytes) {
        self.sent.push(piece.clone());
    }

    pub(crate) fn all_sent(&self) -> &[Bytes] {
        &self.sent
    }

    /// The answer is whole; `kept` waits for its record.
    pub(crate) fn end(&mut self, kept: SharedKept) {
        self.kept = Some(kept);
    }

    /// The wait for the record of an answer that is whole.
    pub(crate) fn ended(&self) -> Option<SharedKept> {
        self.kept.clone()
    }
}
