//! Session ids: by them, engines and routers recognise the requests of one conversation, whose prefix they have cached.
//!
//! vLLM 0.32 takes the id from the header `X-Session-ID`, and vLLM's router keeps a session at one engine.

use std::collections::BTreeSet;

use http::{HeaderName, HeaderValue, header};
use rolltap_rollout::ids::TrialId;
use twox_hash::XxHash3_128;

use super::replica::FORWARDED;

/// The header that vLLM reads.
const VLLM: HeaderName = HeaderName::from_static("x-session-id");
/// The word that turns session ids off.
const NONE: &str = "none";
/// Headers with a meaning of their own, besides those that are forwarded from agents.
const TAKEN: [HeaderName; 11] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::COOKIE,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The bytes at each end of a long first message that decide about its session.
const END: usize = 4096;

/// The names of the headers that carry the session id. Empty if requests have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHeaders(Vec<HeaderName>);

impl Default for SessionHeaders {
    /// The header that vLLM reads.
    fn default() -> Self {
        Self(vec![VLLM])
    }
}

/// The name cannot be that of a session header, or is given twice.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{0:?} cannot carry the session id: give the name of a header that has no other meaning, once, or none alone"
)]
pub struct InvalidSessionHeader(String);

impl SessionHeaders {
    /// Reads names of headers. No name means the default, and `none` alone means no header.
    ///
    /// # Errors
    /// A text is not the name of a header, or that header has another meaning.
    pub fn named(names: &[String]) -> Result<Self, InvalidSessionHeader> {
        match names {
            [] => Ok(Self::default()),
            [only] if only.eq_ignore_ascii_case(NONE) => Ok(Self(Vec::new())),
            names => {
                let mut headers = Vec::new();
                for text in names {
                    let invalid = || InvalidSessionHeader(text.clone());
                    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| invalid())?;
                    let has_meaning = TAKEN.contains(&name) || FORWARDED.contains(&name) || name == NONE;
                    if has_meaning || headers.contains(&name) {
                        return Err(invalid());
                    }
                    headers.push(name);
                }
                Ok(Self(headers))
            }
        }
    }

    pub(super) fn names(&self) -> &[HeaderName] {
        &self.0
    }

    /// Whether requests have no session id.
    pub(super) fn is_off(&self) -> bool {
        self.0.is_empty()
    }
}

/// The conversation of a request within its trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Session {
    /// The request has no messages, or they were not compared with those of earlier requests.
    OfTrial,
    /// The conversation whose first message that is not an instruction has this hash.
    OfConversation(u32),
}

impl Session {
    /// Returns the session of the conversations that begin with this text. It is the same after a restart.
    pub(crate) fn beginning_with(text: &str) -> Self {
        let bytes = text.as_bytes();
        // Conversations of one hash share a session, which costs at most the choice of the engine. So a long text, which
        // each call of a conversation repeats, is not hashed as a whole.
        let hash = match (bytes.first_chunk::<END>(), bytes.last_chunk::<END>()) {
            (Some(first), Some(last)) if bytes.len() > 2 * END => {
                let of_first = XxHash3_128::oneshot_with_seed(bytes.len() as u64, first);
                XxHash3_128::oneshot_with_seed(of_first as u64, last)
            }
            _ => XxHash3_128::oneshot(bytes),
        };
        Self::OfConversation(hash as u32)
    }

    /// Returns the id. It is made of the trial's name, which is no secret, and never of its key.
    pub(super) fn id(self, trial: &TrialId) -> String {
        match self {
            Self::OfTrial => trial.to_string(),
            // No trial has a tilde in its name, and a query needs no escape for it.
            Self::OfConversation(hash) => format!("{trial}~{hash:08x}"),
        }
    }

    /// Returns the id as the value of a header.
    pub(super) fn header_value(self, trial: &TrialId) -> Option<HeaderValue> {
        // The name of a trial has letters, digits and `._-` only, so the id is always a value.
        HeaderValue::try_from(self.id(trial)).ok()
    }
}

/// The sessions that a trial has used.
pub(super) type UsedSessions = BTreeSet<Session>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(names: &[&str]) -> Result<Vec<String>, InvalidSessionHeader> {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let headers = SessionHeaders::named(&names)?;
        Ok(headers.names().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_session_is_in_vllms_header_or_in_those_that_are_named() {
        assert_eq!(names(&[]).unwrap(), ["x-session-id"]);
        assert_eq!(names(&["X-Routing-Key", "x-session-id"]).unwrap(), ["x-routing-key", "x-session-id"]);
        assert!(names(&["none"]).unwrap().is_empty());
        assert!(names(&["None"]).unwrap().is_empty());
        for wrong in [
            &["a b"][..],
            &["Authorization"],
            &["X-Request-ID"],
            &[""],
            &["x-a", "none"],
            &["x:y"],
            &["x-a", "X-A"],
        ] {
            let error = names(wrong).unwrap_err().to_string();
            assert!(error.contains("a header that has no other meaning"), "{error}");
        }
    }

    #[test]
    fn the_id_of_a_conversation_is_that_of_no_other_trial_and_never_changes() {
        let trial = TrialId::new("task__1").unwrap();
        assert_eq!(Session::OfTrial.id(&trial), "task__1");
        assert_eq!(Session::beginning_with("a").id(&trial), "task__1~1e964e1f");
        assert!(TrialId::new("task__1~1e964e1f").is_err());
        let long =
            |first: &str, last: &str| Session::beginning_with(&format!("{first}{}{last}", "x".repeat(9000)));
        assert_eq!(long("a", "b"), long("a", "b"));
        assert!(long("a", "b") != long("c", "b") && long("a", "b") != long("a", "c"));
    }

    proptest! {
        #[test]
        fn any_names_are_headers_or_an_error(names: Vec<String>) {
            let _ = SessionHeaders::named(&names);
        }

        #[test]
        fn the_id_of_any_trial_is_a_header_value(name in "[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}", number: u32) {
            let trial = TrialId::new(name).unwrap();
            let value = Session::OfConversation(number).header_value(&trial).unwrap();
            prop_assert_eq!(value.to_str().unwrap(), format!("{trial}~{number:08x}"));
        }
    }
}
