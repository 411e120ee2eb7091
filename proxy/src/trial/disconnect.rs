//! The error in the record of a call whose agent disconnected.
//!
//! A gateway that waits too long for a silent answer disconnects exactly like an agent. The record has the length of the
//! silence and the gateway's trace in the request, so that its reader can distinguish the two.

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};

use crate::common::clock;

/// A reverse proxy between the agent and rolltap, known by a header that it added to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gateway {
    header: &'static str,
}

/// The headers that reverse proxies add.
const GATEWAY_HEADERS: [&str; 3] = ["x-forwarded-for", "forwarded", "via"];

impl Gateway {
    /// Returns the gateway that forwarded a request, or `None` if no header shows one.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let header = GATEWAY_HEADERS.into_iter().find(|name| headers.contains_key(*name))?;
        Some(Self { header })
    }
}

/// The progress of an answer when its agent disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// No byte was sent for this time, which is that of the whole call.
    Silent(SignedDuration),
    /// The answer had begun. A stream sends keep-alives, so no time-out of a gateway is a likely cause.
    Begun,
}

impl Progress {
    /// Returns the progress of a call that began at `started_at` and has sent nothing.
    pub(super) fn silent_since(started_at: Timestamp) -> Self {
        Self::Silent(clock::now().duration_since(started_at))
    }
}

/// Returns the error for the record.
pub(super) fn error(progress: Progress, gateway: Option<Gateway>) -> String {
    const LEFT: &str = "the agent left before the answer was whole";
    let Progress::Silent(silence) = progress else { return LEFT.to_owned() };
    let silent = format!("{LEFT}, after {:.1} s without a byte of it", silence.as_secs_f64());
    match gateway {
        None => silent,
        Some(Gateway { header }) => format!(
            "{silent}; or the gateway in front of rolltap ({header}) has a time-out of that length: make it longer than \
             --upstream-idle-timeout"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_known_by_its_header() {
        let gateway_of = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, "192.0.2.1".parse().unwrap());
            Gateway::of(&headers)
        };
        for header in GATEWAY_HEADERS {
            assert_eq!(gateway_of(header), Some(Gateway { header }));
        }
        assert_eq!(gateway_of("x-request-id"), None);
    }

    #[test]
    fn only_a_silent_call_through_a_gateway_suspects_the_gateway() {
        let gateway = Some(Gateway { header: "via" });
        let silent = Progress::Silent(SignedDuration::from_millis(60_040));
        assert_eq!(error(Progress::Begun, gateway), "the agent left before the answer was whole");
        let without = error(silent, None);
        assert_eq!(without, "the agent left before the answer was whole, after 60.0 s without a byte of it");
        let with = error(silent, gateway);
        assert!(
            with.starts_with(&without) && with.contains("the gateway in front of rolltap (via)"),
            "{with}"
        );
    }
}
