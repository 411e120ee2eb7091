//! Edits JSON text and preserves every byte that is not part of an edit.
//!
//! A body is never parsed and serialized again: numbers, keys and strings retain their spelling, and keys their order.
//! The text is scanned once to locate the values, and an edit is a splice at those positions.

mod splices;

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

pub(crate) use self::splices::{Splices, range_in};
use crate::wire::json_scan::Cursor;

/// The members of a JSON object, in order. Each value is a slice of the text.
pub(crate) struct Object<'a> {
    text: &'a str,
    members: Members<'a>,
    /// The [`bit_of`] each key. A request is asked for dozens of keys, of which it has few.
    keys: u64,
}

impl<'a> Object<'a> {
    /// Scans `text`, which must be one JSON object. Errors within a nested value may remain undetected: its text is
    /// unchanged, and its reader reports them.
    pub(crate) fn scan(text: &'a str) -> Result<Self, serde_json::Error> {
        // The fast scanner also rejects valid JSON of unusual form, such as escaped keys, so serde decides.
        let members = match plain_members(text, |cursor, _| cursor.value()) {
            Some(members) => members,
            None => serde_json::from_str::<JsonMembers<'a>>(text)?.0,
        };
        Ok(Self::new(text, members))
    }

    fn new(text: &'a str, members: Members<'a>) -> Self {
        let keys = members.iter().fold(0, |keys, (name, _)| keys | bit_of(name));
        Self { text, members, keys }
    }

    /// Scans `text` as [`Object::scan`] does, and splits the list `key` into the texts of its items in the same pass. The
    /// items are `None` if the object has no such list.
    pub(crate) fn scan_with_items(
        text: &'a str,
        key: &str,
    ) -> Result<(Self, Option<Vec<&'a str>>), serde_json::Error> {
        let mut items = None;
        let mut value = |cursor: &mut Cursor<'a>, name: &str| {
            if name != key {
                return cursor.value();
            }
            items = None;
            if !cursor.is_at_array() {
                return cursor.value();
            }
            let (start, mut found) = (cursor.position(), Vec::with_capacity(16));
            cursor.array(|cursor| {
                found.push(cursor.value()?);
                Some(())
            })?;
            items = Some(found);
            text.get(start..cursor.position())
        };
        if let Some(members) = plain_members(text, &mut value) {
            return Ok((Self::new(text, members), items));
        }
        let object = Self::scan(text)?;
        let items = object.get(key).and_then(items_of);
        Ok((object, items))
    }

    /// Returns the value of `key`. The last of several values counts, as for every JSON parser in vLLM.
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        if self.keys & bit_of(key) == 0 {
            return None;
        }
        self.members.iter().rev().find(|(name, _)| name == key).map(|&(_, value)| value)
    }

    /// Returns the value of `key` as a `T`, or `None` if its type is different: vLLM reports that error.
    pub(crate) fn get_as<T: Deserialize<'a>>(&self, key: &str) -> Option<T> {
        serde_json::from_str(self.get(key)?).ok()
    }

    /// Returns every member in order, including repeated keys.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.members.iter().map(|(name, value)| (&**name, *value))
    }

    /// Whether `key` is present and not `null`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value != "null")
    }

    /// Whether the agent turned `key` on. A value that vLLM rejects as a boolean counts as on. The proxy does not
    /// replace it, so that vLLM can report the error.
    pub(crate) fn asks_for(&self, key: &str) -> bool {
        self.has(key) && !self.get_as(key).is_some_and(|value| is_off(&value))
    }

    /// Returns a list of edits of this object's text, which is empty so far.
    pub(crate) fn splices(&self) -> Splices<'a> {
        Splices::of(self.text)
    }

    /// Sets `key` to the value `json`, as an edit in `splices`. The value is replaced in place, and a new key is
    /// inserted before all others.
    pub(crate) fn set(&self, key: &str, json: &str, splices: &mut Splices<'a>) {
        if let Some(value) = self.get(key) {
            splices.replace(value, json.to_owned());
            return;
        }
        // Serialized with `serde_json`, because a key may need escapes.
        let quoted = serde_json::Value::from(key);
        let after_brace = self.text.find('{').map_or(0, |brace| brace + 1);
        // A comma separates the new member from the object's own members, or from an earlier insertion.
        let member = match (self.members.is_empty(), splices.has_insertion_at(after_brace)) {
            (false, _) => format!("{quoted}:{json},"),
            (true, false) => format!("{quoted}:{json}"),
            (true, true) => format!(",{quoted}:{json}"),
        };
        splices.insert(after_brace, member);
    }
}

/// Returns one of 64 bits for a key, by its length and its first and last byte. Equal keys have the same bit.
fn bit_of(key: &str) -> u64 {
    let byte = |byte: Option<&u8>| byte.copied().map_or(0, usize::from);
    let bytes = key.as_bytes();
    1 << ((bytes.len() + 5 * byte(bytes.first()) + 11 * byte(bytes.last())) % 64)
}

/// Whether vLLM reads the value as false if it expects a boolean, by the rules of pydantic's lax mode.
pub(crate) fn is_off(value: &serde_json::Value) -> bool {
    const WORDS: [&str; 6] = ["0", "off", "f", "false", "n", "no"];
    match value {
        serde_json::Value::Bool(is_on) => !is_on,
        serde_json::Value::Number(number) => number.as_f64() == Some(0.0),
        serde_json::Value::String(text) => WORDS.contains(&text.to_lowercase().as_str()),
        _ => false,
    }
}

/// The members of an object, with their values as text.
type Members<'a> = Vec<(Cow<'a, str>, &'a str)>;

/// Returns the members of an object whose keys have no escapes. `value` consumes the value of a key and returns its text.
/// Returns `None` if the text has another form.
fn plain_members<'a>(
    text: &'a str,
    mut value: impl FnMut(&mut Cursor<'a>, &str) -> Option<&'a str>,
) -> Option<Members<'a>> {
    let mut members = Vec::with_capacity(16);
    let mut cursor = Cursor::new(text);
    cursor.object(|cursor, key| {
        members.push((Cow::Borrowed(key), value(cursor, key)?));
        Some(())
    })?;
    cursor.is_at_end().then_some(members)
}

/// Returns the texts of a list's items, or `None` if the text is not a list.
fn items_of(list: &str) -> Option<Vec<&str>> {
    let mut items = Vec::with_capacity(16);
    Cursor::new(list).array(|cursor| {
        items.push(cursor.value()?);
        Some(())
    })?;
    Some(items)
}

/// The members of any object, read by serde.
struct JsonMembers<'a>(Members<'a>);

impl<'de> Deserialize<'de> for JsonMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = JsonMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(16);
                while let Some(Key(key)) = map.next_key()? {
                    members.push((key, map.next_value::<&RawValue>()?.get()));
                }
                Ok(JsonMembers(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// A key, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str, key: &str, json: &str) -> String {
        let object = Object::scan(text).unwrap();
        let mut splices = Splices::of(text);
        object.set(key, json, &mut splices);
        splices.edited().unwrap()
    }

    #[test]
    fn everything_but_the_edited_value_keeps_its_bytes() {
        let text = "{ \"a\" : 1.50,\n\"b\":[1e3 , {\"a\":2}],\"c\\u0061\":null}";
        assert_eq!(set(text, "a", "true"), "{ \"a\" : true,\n\"b\":[1e3 , {\"a\":2}],\"c\\u0061\":null}");
        assert_eq!(set(text, "ca", "0"), "{ \"a\" : 1.50,\n\"b\":[1e3 , {\"a\":2}],\"c\\u0061\":0}");
        assert_eq!(
            set(text, "new", "[]"),
            "{\"new\":[], \"a\" : 1.50,\n\"b\":[1e3 , {\"a\":2}],\"c\\u0061\":null}"
        );
    }

    #[test]
    fn an_empty_object_gets_no_comma_too_many() {
        assert_eq!(set(" { }", "k", "1"), " {\"k\":1 }");
        let object = Object::scan("{}").unwrap();
        let mut splices = Splices::of("{}");
        object.set("a", "1", &mut splices);
        object.set("b", "2", &mut splices);
        assert_eq!(splices.edited().unwrap(), r#"{"a":1,"b":2}"#);
    }

    #[test]
    fn of_equal_keys_the_last_counts_and_is_edited() {
        assert_eq!(set(r#"{"a":1,"a":2}"#, "a", "3"), r#"{"a":1,"a":3}"#);
    }

    #[test]
    fn only_absent_null_and_false_ask_for_nothing() {
        for (text, asks) in [
            ("{}", false),
            (r#"{"k":null}"#, false),
            (r#"{"k":false}"#, false),
            (r#"{"k":true}"#, true),
            (r#"{"k":"true"}"#, true),
            (r#"{"k":[]}"#, true),
        ] {
            assert_eq!(Object::scan(text).unwrap().asks_for("k"), asks, "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["", "[]", "{", "{\"a\":}", "null", "{} x", "{\"a\":1,}", "{\"a\" 1}"] {
            assert!(Object::scan(text).is_err(), "{text}");
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".*".prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::hash_map(".{0,4}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_edit_changes_that_key_and_nothing_else(
            members in prop::collection::hash_map(".{0,4}", json(), 0..6),
            key in ".{0,4}",
            value in json(),
        ) {
            let mut expected: serde_json::Map<_, _> = members.into_iter().collect();
            let text = serde_json::to_string_pretty(&expected).unwrap();
            expected.insert(key.clone(), value.clone());
            let edited = set(&text, &key, &value.to_string());
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&edited).unwrap(), serde_json::Value::Object(expected));
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            if let Ok(object) = Object::scan(&text) {
                let mut splices = Splices::of(&text);
                object.set("k", "1", &mut splices);
                splices.edited();
            }
        }
    }

    #[test]
    fn fuzz_json_edit() {
        rolltap_testing::fuzz!("json_edit", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            let by_serde = serde_json::from_str::<JsonMembers<'_>>(text).map(|JsonMembers(members)| members);
            if let (Some(plain), Ok(members)) = (plain_members(text, |cursor, _| cursor.value()), &by_serde) {
                assert_eq!(&plain, members);
            }
            let (Ok(object), Ok(serde_json::Value::Object(mut expected))) =
                (Object::scan(text), serde_json::from_str(text))
            else {
                return;
            };
            let last = object.members().last().map(|(key, _)| key.to_owned());
            let mut splices = Splices::of(text);
            for (key, json) in
                [Some(("k".to_owned(), "[1.50]")), last.filter(|key| key != "k").map(|key| (key, "{}"))]
                    .into_iter()
                    .flatten()
            {
                object.set(&key, json, &mut splices);
                expected.insert(key, serde_json::from_str(json).unwrap());
            }
            let edited = splices.edited().unwrap();
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&edited).unwrap(),
                serde_json::Value::Object(expected)
            );
        });
    }
}
