//! Parses the token ids and logprobs of vLLM's JSON.
//!
//! Hand-written code parses the plain forms, and serde parses all others and reports errors. A property test checks that
//! both give the same result.

use std::fmt;

use memchr::memchr;
use rolltap_rollout::token::{Logprob, TokenId};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use crate::wire::json_number::{plain_single, short_number};
use crate::wire::json_scan::Cursor;

/// The logprobs of an answer, or of one event of a stream, which has few: their list needs no memory of its own.
pub(crate) type LogprobList = SmallVec<[Option<Logprob>; 8]>;

/// The error of a text that is not such a list.
pub(crate) type NotAList = serde_json::Error;

/// Appends the ids of a JSON array, or nothing if the text is not a list of token ids.
pub(crate) fn read_ids(text: &str, ids: &mut Vec<TokenId>) -> Result<(), NotAList> {
    let length = ids.len();
    if plain_ids(text, ids).is_some() {
        return Ok(());
    }
    ids.truncate(length);
    let mut json = serde_json::Deserializer::from_str(text);
    let read = TokenIds(ids).deserialize(&mut json).and_then(|()| json.end());
    if read.is_err() {
        ids.truncate(length);
    }
    read
}

/// A number of nine digits is below 2^30, so it is a valid id. serde parses longer numbers.
const PLAIN_DIGITS: usize = 9;

fn plain_ids(text: &str, ids: &mut Vec<TokenId>) -> Option<()> {
    let mut rest = text.as_bytes().strip_prefix(b"[")?.strip_suffix(b"]")?;
    if rest.is_empty() {
        return Some(());
    }
    ids.reserve(rest.len() / 7 + 1);
    loop {
        let value;
        (value, rest) = short_number(rest).or_else(|| plain_id(rest))?;
        ids.push(TokenId::try_from(value).ok()?);
        match rest {
            [] => return Some(()),
            [b',', more @ ..] => rest = more,
            _ => return None,
        }
    }
}

/// Reads an id of up to nine digits, which may be at the end of the text.
fn plain_id(text: &[u8]) -> Option<(u32, &[u8])> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(length)?;
    // JSON has no leading zeros.
    if length == 0 || length > PLAIN_DIGITS || (length > 1 && digits.first() == Some(&b'0')) {
        return None;
    }
    Some((digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')), rest))
}

/// Appends the logprobs of vLLM's `logprobs` object: `content[].logprob` of chat completions, or `token_logprobs` of
/// completions. Appends nothing if the text is not such an object.
pub(crate) fn read_logprobs(text: &str, logprobs: &mut LogprobList) -> Result<(), NotAList> {
    let length = logprobs.len();
    let mut json = serde_json::Deserializer::from_str(text);
    let read = Logprobs(logprobs).deserialize(&mut json).and_then(|()| json.end());
    if read.is_err() {
        logprobs.truncate(length);
    }
    read
}

/// Parses the object of chat completions at a cursor. On `None` some logprobs may have been appended already.
pub(crate) fn plain_logprobs(cursor: &mut Cursor<'_>, logprobs: &mut LogprobList) -> Option<()> {
    let mut content_came = false;
    cursor.object(|cursor, key| {
        if key != "content" {
            // serde parses the object of completions.
            return if key == "token_logprobs" { None } else { cursor.value().map(drop) };
        }
        if std::mem::replace(&mut content_came, true) {
            return None; // serde decides which of two equal members counts
        }
        if cursor.null() { Some(()) } else { cursor.array(|cursor| plain_entry(cursor, logprobs)) }
    })
}

/// Parses an entry in vLLM's exact spelling without alternatives, which occurs once per token. Returns the bytes behind
/// it.
fn exact_entry(bytes: &[u8]) -> Option<(f32, &[u8])> {
    let bytes = after_string(bytes.strip_prefix(br#"{"token":""#)?)?;
    let (number, bytes) = plain_single(bytes.strip_prefix(br#","logprob":"#)?)?;
    let bytes = bytes.strip_prefix(br#","bytes":["#)?;
    // A list of bytes contains no bracket. If another value stands here, the text behind its bracket differs.
    let length = memchr(b']', bytes)?;
    Some((number, bytes.get(length..)?.strip_prefix(br#"],"top_logprobs":[]}"#)?))
}

/// Returns the bytes behind a string's closing quote, given those behind its opening quote. The strings are short, so a
/// plain loop is the fastest search.
fn after_string(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        bytes = match bytes {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', _, rest @ ..] | [_, rest @ ..] => rest,
            [] => return None,
        };
    }
}

fn plain_entry(cursor: &mut Cursor<'_>, logprobs: &mut LogprobList) -> Option<()> {
    if let Some(number) = cursor.read(exact_entry) {
        logprobs.push(Logprob::try_from(number).ok());
        return Some(());
    }
    let mut found = None;
    cursor.object(|cursor, key| {
        if key != "logprob" {
            return cursor.value().map(drop);
        }
        let number = if cursor.null() { None } else { Some(cursor.number()?) };
        found.replace(number).is_none().then_some(())
    })?;
    logprobs.push(logprob(found.flatten()));
    Some(())
}

/// vLLM prints a 32-bit number with the digits of a 64-bit number, so this conversion is exact.
fn logprob(number: Option<f64>) -> Option<Logprob> {
    Logprob::try_from(number? as f32).ok()
}

/// Appends a JSON array of token ids, without a temporary list per chunk.
struct TokenIds<'v>(&'v mut Vec<TokenId>);

impl<'de> DeserializeSeed<'de> for TokenIds<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for TokenIds<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of token ids")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut ids: A) -> Result<(), A::Error> {
        while let Some(id) = ids.next_element()? {
            self.0.push(id);
        }
        Ok(())
    }
}

/// Appends the logprobs of either form of the object.
struct Logprobs<'v>(&'v mut LogprobList);

impl<'de> DeserializeSeed<'de> for Logprobs<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Logprobs<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a logprobs object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match &*key {
                "content" => {
                    let entries: Option<Vec<Entry>> = map.next_value()?;
                    self.0
                        .extend(entries.unwrap_or_default().into_iter().map(|entry| logprob(entry.logprob)));
                }
                "token_logprobs" => {
                    let numbers: Option<Vec<Option<f64>>> = map.next_value()?;
                    self.0.extend(numbers.unwrap_or_default().into_iter().map(logprob));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[derive(serde::Deserialize)]
struct Entry {
    logprob: Option<f64>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_serde(text: &str) -> Option<Vec<TokenId>> {
        serde_json::from_str(text).ok()
    }

    fn by_hand(text: &str) -> Option<Vec<TokenId>> {
        let mut ids = Vec::new();
        read_ids(text, &mut ids).is_ok().then_some(ids)
    }

    fn logprobs_by_hand(text: &str) -> Option<LogprobList> {
        let mut found = LogprobList::new();
        let mut cursor = Cursor::new(text);
        plain_logprobs(&mut cursor, &mut found)?;
        cursor.is_at_end().then_some(found)
    }

    fn logprobs_by_serde(text: &str) -> Option<LogprobList> {
        let mut found = LogprobList::new();
        read_logprobs(text, &mut found).is_ok().then_some(found)
    }

    #[test]
    fn lists_of_unusual_form_are_what_serde_says() {
        for text in [
            "[]",
            "[ 1 , 2 ]",
            "[01]",
            "[1,]",
            "[,1]",
            "[2147483647]",
            "[2147483648]",
            "[0,00]",
            "[-1]",
            "[1.0]",
            "[1,\"2\"]",
            "",
            "[",
            "[][",
        ] {
            assert_eq!(by_hand(text), by_serde(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_adds_nothing() {
        let mut ids = vec![TokenId::try_from(7).unwrap()];
        assert!(read_ids("[1,2,-3]", &mut ids).is_err());
        assert_eq!(ids.len(), 1);
    }

    proptest! {
        #[test]
        fn ids_by_hand_are_ids_by_serde(text in r"\[[0-9, \-\.]{0,24}\]?") {
            prop_assert_eq!(by_hand(&text), by_serde(&text));
        }

        #[test]
        fn every_list_of_ids_is_read(numbers in prop::collection::vec(0..=i32::MAX as u32, 0..40)) {
            let text = serde_json::to_string(&numbers).unwrap();
            let mut ids = Vec::new();
            let is_plain = plain_ids(&text, &mut ids).is_some();
            prop_assert!(is_plain == numbers.iter().all(|&number| number < 1_000_000_000));
            prop_assert_eq!(by_hand(&text).unwrap(), numbers.into_iter().map(|id| TokenId::try_from(id).unwrap()).collect::<Vec<_>>());
        }

        #[test]
        fn logprobs_by_hand_are_logprobs_by_serde(
            entries in prop::collection::vec((".{0,6}", prop::option::of(any::<f32>())), 0..8),
            content_is_null in any::<bool>(),
        ) {
            let entries: Vec<_> = entries.into_iter().map(|(token, logprob)| {
                serde_json::json!({"token": token, "logprob": logprob.map(f64::from), "bytes": [1, 2], "top_logprobs": [{"logprob": -1.0, "token": "]"}]})
            }).collect();
            let text = serde_json::json!({"refusal": null, "content": (!content_is_null).then_some(entries)}).to_string();
            prop_assert_eq!(logprobs_by_hand(&text), logprobs_by_serde(&text));
        }
    }

    #[test]
    fn fuzz_token_ids() {
        rolltap_testing::fuzz!("token_ids", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            assert_eq!(by_hand(text), by_serde(text));
        });
    }

    #[test]
    fn fuzz_logprobs() {
        rolltap_testing::fuzz!("logprobs", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            if let (Some(by_hand), Some(by_serde)) = (logprobs_by_hand(text), logprobs_by_serde(text)) {
                assert_eq!(by_hand, by_serde);
            }
        });
    }
}
