//! Session ids: by them, engines and routers recognise the requests of one conversation, whose prefix they have cached.
//!
//! vLLM 0.32 takes the id from the header `X-Session-ID`, and vLLM's router keeps a session at one engine.

use http::{HeaderName, HeaderValue, header};
use rolltap_rollout::ids::TrialId;

/// The header that vLLM reads.
const VLLM: HeaderName = HeaderName::from_static("x-session-id");
/// The word that turns session ids off.
const NONE: &str = "none";
/// Headers with a meaning of their own.
const TAKEN: [HeaderName; 8] = [
    header::ACCEPT,
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::TRANSFER_ENCODING,
    header::USER_AGENT,
];

/// The names of the headers that carry the session id. Empty if requests have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHeaders(Vec<HeaderName>);

impl Default for SessionHeaders {
    /// The header that vLLM reads.
    fn default() -> Self {
        Self(vec![VLLM])
    }
}

/// The name cannot be that of a session header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{0:?} cannot carry the session id: give the name of a header that has no other meaning, or none alone"
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
            [only] if only == NONE => Ok(Self(Vec::new())),
            names => names.iter().map(|name| named(name)).collect::<Result<_, _>>().map(Self),
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

fn named(name: &str) -> Result<HeaderName, InvalidSessionHeader> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).ok().filter(|parsed| !TAKEN.contains(parsed));
    parsed.filter(|_| name != NONE).ok_or_else(|| InvalidSessionHeader(name.to_owned()))
}

/// The conversation of a request within its trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Session {
    /// The request has no messages, or they were not compared with those of earlier requests.
    OfTrial,
    /// The conversation that began as the n-th of the trial, from 0.
    OfConversation(u32),
}

impl Session {
    /// Returns the id. It is made of the trial's name, which is no secret, and never of its key.
    pub(super) fn id(self, trial: &TrialId) -> String {
        match self {
            Self::OfTrial => trial.to_string(),
            Self::OfConversation(number) => format!("{trial}.{number}"),
        }
    }

    /// Returns the id as the value of a header.
    pub(super) fn header_value(self, trial: &TrialId) -> Option<HeaderValue> {
        // The name of a trial has letters, digits and `._-` only, so it is always a value.
        HeaderValue::try_from(self.id(trial)).ok()
    }
}

/// The sessions that a trial has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UsedSessions {
    has_own: bool,
    conversations: u32,
}

impl UsedSessions {
    /// Adds a session.
    pub(super) fn add(&mut self, session: Session) {
        match session {
            Session::OfTrial => self.has_own = true,
            Session::OfConversation(number) => {
                self.conversations = self.conversations.max(number.saturating_add(1));
            }
        }
    }

    /// Returns every session of the trial. Conversations are numbered without gaps.
    pub(super) fn all(self) -> impl Iterator<Item = Session> {
        let own = self.has_own.then_some(Session::OfTrial);
        own.into_iter().chain((0..self.conversations).map(Session::OfConversation))
    }
}

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
        for wrong in [&["a b"][..], &["Authorization"], &[""], &["x-a", "none"], &["x:y"]] {
            let error = names(wrong).unwrap_err().to_string();
            assert!(error.contains("a header that has no other meaning"), "{error}");
        }
    }

    #[test]
    fn every_session_that_was_used_is_one_of_the_trial() {
        let trial = TrialId::new("task__1").unwrap();
        let mut used = UsedSessions::default();
        assert_eq!(used.all().count(), 0);
        for session in [Session::OfConversation(1), Session::OfTrial, Session::OfConversation(0)] {
            used.add(session);
        }
        let ids: Vec<_> = used.all().map(|session| session.id(&trial)).collect();
        assert_eq!(ids, ["task__1", "task__1.0", "task__1.1"]);
    }

    proptest! {
        #[test]
        fn any_names_are_headers_or_an_error(names: Vec<String>) {
            let _ = SessionHeaders::named(&names);
        }

        #[test]
        fn the_id_of_any_trial_is_a_header(name in "[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}", number: u32) {
            let trial = TrialId::new(name).unwrap();
            let value = Session::OfConversation(number).header_value(&trial).unwrap();
            prop_assert_eq!(value.to_str().unwrap(), format!("{trial}.{number}"));
        }
    }
}
