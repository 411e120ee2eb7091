//! Values of a request, each with its place, so that an error can say where.

use serde_json::{Map, Value};

use crate::dialect::bad_request::BadRequest;

/// An object of the request and where it stands (`input[2].content[0]`).
pub(super) struct RequestObject<'a> {
    object: &'a Map<String, Value>,
    at: String,
}

impl<'a> RequestObject<'a> {
    pub(super) fn of(value: &'a Value, at: String) -> Result<Self, BadRequest> {
        match value {
            Value::Object(object) => Ok(Self { object, at }),
            other => Err(wrong_type(at, "an object", other)),
        }
    }

    /// The whole request.
    pub(super) fn root(object: &'a Map<String, Value>) -> Self {
        Self { object, at: String::new() }
    }

    /// The keys that are set to anything.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.object.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str())
    }

    /// The value of a key, where it is set to anything.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// Where a key of it stands.
    pub(super) fn at(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    /// The text at a key, where it is set.
    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>, BadRequest> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(self.at(key), "a string", other)),
        }
    }

    /// The boolean at a key, where it is set.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, BadRequest> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(wrong_type(self.at(key), "a boolean", other)),
        }
    }

    /// The text at a key, which must be set.
    pub(super) fn text(&self, key: &str) -> Result<&'a str, BadRequest> {
        self.optional_text(key)?.ok_or_else(|| {
            let at = self.at(key);
            BadRequest::at(at.clone(), format!("{at} is missing: it must be a string"))
        })
    }

    /// The members of the list at a key, each with its place; none where the key is not set.
    pub(super) fn members(
        &self,
        key: &str,
    ) -> Result<impl Iterator<Item = (&'a Value, String)> + use<'a>, BadRequest> {
        let at = self.at(key);
        let list = match self.get(key) {
            None => &[],
            Some(Value::Array(list)) => list.as_slice(),
            Some(other) => return Err(wrong_type(at, "a list", other)),
        };
        Ok(list.iter().enumerate().map(move |(index, member)| (member, format!("{at}[{index}]"))))
    }

    /// Why the object cannot be carried over.
    pub(super) fn refuse(&self, why: impl std::fmt::Display) -> BadRequest {
        BadRequest::at(self.at.clone(), format!("{}: {why}", self.at))
    }
}

/// The error for a value of another type than expected.
pub(super) fn wrong_type(at: impl Into<String>, expected: &str, found: &Value) -> BadRequest {
    let at = at.into();
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    BadRequest::at(at.clone(), format!("{at} must be {expected}, and is {found}"))
}
