//! Retries that a client marks as such. A marked retry of a recent call gets that call's answer, and is not sampled
//! twice; the same body without the mark is a new sample, because agents sample in parallel on purpose.
//!
//! The clients of OpenAI and Anthropic mark every request: `x-stainless-retry-count: 0` at first, more for a retry. Only
//! for such clients is an answer kept.

use std::collections::VecDeque;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use crate::call_under_way::CallUnderWay;

const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// Calls of one trial whose answers are kept. A client retries within seconds; sub-agents call side by side.
const RECENT: usize = 4;

/// What a request says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing: its client does not mark retries.
    None,
    /// The first try.
    First,
    /// A retry.
    Retry,
}

/// What makes a retry the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

/// The latest marked calls of a trial.
#[derive(Debug, Default)]
pub(crate) struct RecentCalls(VecDeque<(Fingerprint, Arc<CallUnderWay>)>);

impl Mark {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match headers.get(RETRY_COUNT).map(|count| count.as_bytes()) {
            None => Self::None,
            Some(b"0") => Self::First,
            Some(_) => Self::Retry,
        }
    }
}

impl Fingerprint {
    pub(crate) fn of(path: &str, body: &[u8]) -> Self {
        Self(Sha256::new().chain_update(path).chain_update([0]).chain_update(body).finalize().into())
    }
}

impl RecentCalls {
    pub(crate) fn remember(&mut self, fingerprint: Fingerprint, call: Arc<CallUnderWay>) {
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back((fingerprint, call));
    }

    /// The latest call of that request.
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> Option<Arc<CallUnderWay>> {
        self.0.iter().rev().find(|(known, _)| *known == fingerprint).map(|(_, call)| Arc::clone(call))
    }

    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_above_zero_marks_a_retry() {
        let mark = |count: Option<&str>| {
            let headers = count.map(|count| (RETRY_COUNT, count.parse().unwrap()));
            Mark::of(&headers.into_iter().collect())
        };
        assert_eq!(mark(None), Mark::None);
        assert_eq!(mark(Some("0")), Mark::First);
        assert_eq!(mark(Some("2")), Mark::Retry);
    }

    #[test]
    fn another_path_or_body_is_another_request() {
        let one = Fingerprint::of("/v1/messages", b"{}");
        assert_eq!(one, Fingerprint::of("/v1/messages", b"{}"));
        assert_ne!(one, Fingerprint::of("/v1/responses", b"{}"));
        assert_ne!(one, Fingerprint::of("/v1/messages", b"{ }"));
    }
}
