//! Reads the members of a request's body one by one. The remaining members are unknown keys.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::bad_request::BadRequest;

/// The members of a body that have not been read yet. A member that is `null` counts as absent.
pub(super) struct RequestMembers<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> RequestMembers<'a> {
    pub(super) fn scan(body: &'a str) -> Result<Self, BadRequest> {
        let mut members: BTreeMap<String, &'a RawValue> = serde_json::from_str(body)
            .map_err(|error| BadRequest::new(format!("the request body is not a JSON object: {error}")))?;
        // Clients send `null` for options that are not set.
        members.retain(|_, value| value.get() != "null");
        Ok(Self(members))
    }

    pub(super) fn take(&mut self, key: &str) -> Option<&'a RawValue> {
        self.0.remove(key)
    }

    pub(super) fn take_as<T: Deserialize<'a>>(&mut self, key: &str) -> Result<Option<T>, BadRequest> {
        self.take(key).map(|value| read(value, key)).transpose()
    }

    pub(super) fn require<T: Deserialize<'a>>(&mut self, key: &str) -> Result<T, BadRequest> {
        self.take_as(key)?.ok_or_else(|| refusal(key, "is missing and required"))
    }

    /// Returns the first key that was not read.
    pub(super) fn left(&self) -> Option<&str> {
        self.0.keys().next().map(String::as_str)
    }
}

/// Parses the value at `place` of the body.
pub(super) fn read<'a, T: Deserialize<'a>>(value: &'a RawValue, place: &str) -> Result<T, BadRequest> {
    serde_json::from_str(value.get())
        .map_err(|error| refusal(place, &format!("is not as it should be: {error}")))
}

/// Returns the error for the value at `place`. Anthropic's errors have no field for the place, so the message contains
/// it.
pub(super) fn refusal(place: &str, fault: &str) -> BadRequest {
    BadRequest::at(place, format!("{place} {fault}"))
}
