//! Retries that a client marks as such. A marked retry gets the recorded answer of an equal call if that call's agent
//! did not get the end. Otherwise it is sampled. A request without the mark is always sampled, because agents sample in
//! parallel on purpose.
//!
//! The clients of OpenAI and Anthropic mark every request: `x-stainless-retry-count` is 0 for the first try and more
//! for a retry. The mark does not identify the call that is retried. Answers are stored only for such clients.

use std::collections::VecDeque;

use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use crate::trial::replay::Replay;

const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// The maximum number of undelivered answers that a trial stores. The oldest is dropped for a new one. A client retries
/// within seconds.
const MOST: usize = 16;

/// The mark of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// There is no mark: the client does not mark retries.
    None,
    /// The first try.
    First,
    /// A retry.
    Retry,
}

/// Identifies equal requests by their path and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

/// A trial's complete answers whose connections closed before the end was handed over, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Undelivered(VecDeque<(Fingerprint, Replay)>);

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
        // The zero byte separates the path from the body.
        Self(Sha256::new().chain_update(path).chain_update([0]).chain_update(body).finalize().into())
    }
}

impl Undelivered {
    pub(crate) fn add(&mut self, fingerprint: Fingerprint, answer: Replay) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((fingerprint, answer));
    }

    /// Removes and returns the oldest answer to that request, so that no other retry gets it.
    pub(crate) fn take(&mut self, fingerprint: Fingerprint) -> Option<Replay> {
        let position = self.0.iter().position(|(known, _)| *known == fingerprint)?;
        self.0.remove(position).map(|(_, answer)| answer)
    }

    pub(crate) fn clear(&mut self) {
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
