//! Reads values of a request together with their location, for error messages.

use serde_json::{Map, Value};

use crate::dialect::bad_request::BadRequest;

/// An object of the request with its location, such as `input[2].content[0]`.
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

    /// Returns the whole request, whose location is empty.
    pub(super) fn root(object: &'a Map<String, Value>) -> Self {
        Self { object, at: String::new() }
    }

    /// Returns the keys whose value is not `null`.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.object.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str())
    }

    /// Returns the value of a key, or `None` if it is absent or `null`.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// Returns the location of a key's value.
    pub(super) fn at(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }

    /// Returns the text at a key, or `None` if the key is absent.
    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>, BadRequest> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(self.at(key), "a string", other)),
        }
    }

    /// Returns the boolean at a key, or `None` if the key is absent.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, BadRequest> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(wrong_type(self.at(key), "a boolean", other)),
        }
    }

    /// Returns the text at a key, which is required.
    pub(super) fn text(&self, key: &str) -> Result<&'a str, BadRequest> {
        self.optional_text(key)?.ok_or_else(|| {
            let at = self.at(key);
            BadRequest::at(at.clone(), format!("{at} is missing: it must be a string"))
        })
    }

    /// Returns the members of the list at a key, each with its location. An absent key counts as an empty list.
    pub(super) fn members(
        &self,
        key: &str,
    ) -> Result<impl Iterator<Item = (&'a Value, String)> + use<'a>, BadRequest> {
        let at = self.at(key);
        // `get` treats `null` as absent.
        let list = match self.get(key) {
            None => &[],
            Some(Value::Array(list)) => list.as_slice(),
            Some(other) => return Err(wrong_type(at, "a list", other)),
        };
        Ok(list.iter().enumerate().map(move |(index, member)| (member, format!("{at}[{index}]"))))
    }

    /// Returns the error for an object that cannot be translated.
    pub(super) fn refuse(&self, why: impl std::fmt::Display) -> BadRequest {
        BadRequest::at(self.at.clone(), format!("{}: {why}", self.at))
    }
}

/// Returns the error for a value of the wrong type.
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
