//! Reads an object of a Gemini request field by field. A field that the translation does not read causes an error, so
//! no field is silently ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::bad_request::BadRequest;

/// The fields of one object that have not been read yet. A `null` counts as absent, as in the JSON form of every
/// protobuf.
#[derive(Debug)]
pub(super) struct ObjectFields<'a> {
    /// The location of the object, such as `contents[2].parts[0]`. Empty for the body.
    place: String,
    /// The remaining fields by their lowerCamelCase names.
    members: BTreeMap<String, &'a RawValue>,
}

impl<'a> ObjectFields<'a> {
    pub(super) fn read(place: impl Into<String>, json: &'a str) -> Result<Self, BadRequest> {
        let place = place.into();
        let read: Result<BTreeMap<String, &'a RawValue>, _> = serde_json::from_str(json);
        let Ok(members) = read else {
            let what = if place.is_empty() { "the request body" } else { &place };
            return Err(BadRequest::at(&place, format!("{what} is not a JSON object")));
        };
        // Protobuf clients may write unset fields as `null`.
        let is_set = |(_, value): &(String, &RawValue)| value.get() != "null";
        let members = members.into_iter().filter(is_set).map(|(name, value)| (camel(&name), value)).collect();
        Ok(Self { place, members })
    }

    /// Returns the location of the value of `key`.
    pub(super) fn place_of(&self, key: &str) -> String {
        if self.place.is_empty() { key.to_owned() } else { format!("{}.{key}", self.place) }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn raw(&mut self, key: &str) -> Option<&'a RawValue> {
        self.members.remove(key)
    }

    /// Returns the value of `key`. `form` describes the expected form in the error.
    pub(super) fn get<T: Deserialize<'a>>(&mut self, key: &str, form: &str) -> Result<Option<T>, BadRequest> {
        let Some(raw) = self.raw(key) else { return Ok(None) };
        let value = serde_json::from_str(raw.get());
        value.map(Some).map_err(|_| self.fault(key, format!("must be {form}")))
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, BadRequest> {
        self.get(key, "a string")
    }

    /// Returns a text that is required.
    pub(super) fn required_text(&mut self, key: &str) -> Result<String, BadRequest> {
        self.text(key)?.ok_or_else(|| self.fault(key, "is missing"))
    }

    pub(super) fn flag(&mut self, key: &str) -> Result<bool, BadRequest> {
        Ok(self.get(key, "true or false")?.unwrap_or(false))
    }

    pub(super) fn object(&mut self, key: &str) -> Result<Option<Self>, BadRequest> {
        let place = self.place_of(key);
        self.raw(key).map(|raw| Self::read(place, raw.get())).transpose()
    }

    /// Returns the objects of a list, which is empty by default.
    pub(super) fn objects(&mut self, key: &str) -> Result<Vec<Self>, BadRequest> {
        let place = self.place_of(key);
        let list: Vec<&RawValue> = self.get(key, "a list")?.unwrap_or_default();
        let read = |(at, raw): (usize, &&'a RawValue)| Self::read(format!("{place}[{at}]"), raw.get());
        list.iter().enumerate().map(read).collect()
    }

    /// Discards fields that have no effect on a local model.
    pub(super) fn without_effect(&mut self, keys: &[&str]) {
        self.members.retain(|name, _| !keys.contains(&name.as_str()));
    }

    /// Rejects fields that cannot be translated.
    pub(super) fn refuse(&self, keys: &[&str], why: &str) -> Result<(), BadRequest> {
        match keys.iter().find(|key| self.members.contains_key(**key)) {
            Some(key) => Err(self.fault(key, why)),
            None => Ok(()),
        }
    }

    /// Rejects fields that were not read.
    pub(super) fn end(self) -> Result<(), BadRequest> {
        match self.members.keys().next() {
            Some(key) => Err(self.fault(key, "is not known here: leave it out")),
            None => Ok(()),
        }
    }

    pub(super) fn fault(&self, key: &str, what: impl AsRef<str>) -> BadRequest {
        let place = self.place_of(key);
        BadRequest::at(&place, format!("{place} {}", what.as_ref()))
    }
}

/// Converts a name to lowerCamelCase: the JSON of a protobuf permits both spellings, `topP` and `top_p`.
pub(super) fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |camel, word| {
        let mut letters = word.chars();
        let head = letters.next().map(|letter| letter.to_ascii_uppercase());
        camel + &head.into_iter().chain(letters).collect::<String>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_one_field() {
        let mut fields = ObjectFields::read("", r#"{"top_p":1,"topK":2,"seed":null}"#).unwrap();
        assert_eq!(fields.get::<u8>("topP", "a number"), Ok(Some(1)));
        assert_eq!(fields.get::<u8>("topK", "a number"), Ok(Some(2)));
        assert_eq!(fields.end(), Ok(()));
    }

    #[test]
    fn what_nobody_took_is_named_with_its_place() {
        let mut body = ObjectFields::read("", r#"{"a":[{"b":1}]}"#).unwrap();
        let [inner] = <[_; 1]>::try_from(body.objects("a").unwrap()).unwrap();
        let fault = inner.end().unwrap_err();
        assert_eq!(fault.param(), Some("a[0].b"));
        assert_eq!(fault.to_string(), "a[0].b is not known here: leave it out");
    }
}
