//! Replaces serde's descriptions of types by words for people who write JSON, YAML or TOML.

use super::suggest::{did_you_mean, nearest};

/// serde's descriptions, each with its words. The longer of two descriptions with a common beginning is first.
const WORDS: [(&str, &str); 31] = [
    ("a nonzero u128", "a whole number of at least 1"),
    ("a nonzero u64", "a whole number of at least 1"),
    ("a nonzero u32", "a whole number of at least 1"),
    ("a nonzero u16", "a whole number of at least 1"),
    ("a nonzero usize", "a whole number of at least 1"),
    ("expected usize", "expected a whole number of at least 0"),
    ("expected u64", "expected a whole number of at least 0"),
    ("expected u32", "expected a whole number of at least 0"),
    ("expected u16", "expected a whole number of at least 0"),
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected i64", "expected a whole number"),
    ("expected i32", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("expected f32", "expected a number"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected keys with values"),
    ("expected a borrowed string", "expected a text"),
    ("expected a string", "expected a text"),
    ("expected path string", "expected a path"),
    ("expected a boolean", "expected true or false"),
    ("invalid type: string ", "found the text "),
    ("invalid type: integer ", "found the number "),
    ("invalid type: floating point ", "found the number "),
    ("invalid type: boolean ", "found "),
    ("invalid type: sequence", "found a list"),
    ("invalid type: map", "found keys with values"),
    ("invalid type: unit value", "found no value"),
    ("invalid type: null", "found null"),
    ("invalid value: string ", "found the text "),
    ("invalid value: integer ", "found the number "),
    ("invalid value: floating point ", "found the number "),
];

/// Returns a message of serde in plain words. An unknown key gets the known keys, and the nearest of them.
pub fn in_words(message: &str) -> String {
    if let Some(text) = unknown_key(message) {
        return text;
    }
    let text = WORDS.iter().fold(message.to_owned(), |text, (serde, words)| text.replace(serde, words));
    // The name of a Rust type has no meaning for the author of a file.
    let (before, rest) = match text.split_once("expected struct ") {
        Some(split) => split,
        None => return text,
    };
    let rest = rest.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == '_');
    format!("{before}expected keys with values{rest}")
}

fn unknown_key(message: &str) -> Option<String> {
    let (before, rest) = message.split_once("unknown field `")?;
    let (given, rest) = rest.split_once('`')?;
    // The names of fields have no backticks, so they stand between every other pair.
    let known: Vec<_> = rest.split('`').skip(1).step_by(2).collect();
    let after = rest.rsplit_once('`').map_or(rest, |(_, after)| after);
    let place = after.find(" at line").and_then(|at| after.get(at..)).unwrap_or_default();
    // The path of the message ends with the key itself.
    let before = before.strip_suffix(&format!("{given}: ")).unwrap_or(before);
    let hint = did_you_mean(nearest(given, known.iter().copied()));
    let keys = if known.is_empty() {
        "it has no keys".to_owned()
    } else {
        format!("known keys: {}", known.join(", "))
    };
    Some(format!("{before}unknown key {given:?}{hint}; {keys}{place}"))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its errors are of interest")]
    struct Body {
        samples: Option<NonZeroU32>,
        names: Option<Vec<String>>,
        inner: Option<Box<Body>>,
    }

    fn error(text: &str) -> String {
        in_words(&serde_json::from_str::<Body>(text).unwrap_err().to_string())
    }

    #[test]
    fn types_of_serde_become_words() {
        let at = |text: &str| error(text).split(" at line").next().unwrap().to_owned();
        assert_eq!(
            at(r#"{"samples": "many"}"#),
            r#"found the text "many", expected a whole number of at least 1"#
        );
        assert_eq!(at(r#"{"samples": 0}"#), "found the number `0`, expected a whole number of at least 1");
        assert_eq!(at(r#"{"names": 3}"#), "found the number `3`, expected a list");
        assert_eq!(at(r#"{"inner": true}"#), "found `true`, expected keys with values");
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_nearest() {
        let unknown = error(r#"{"sample": 1}"#);
        let expected = r#"unknown key "sample" (did you mean "samples"?); known keys: samples, names, inner at line 1 column 9"#;
        assert_eq!(unknown, expected);
    }

    proptest::proptest! {
        #[test]
        fn any_message_has_words(message in "(unknown field `|`|expected struct |[a-z ,:]|ö){0,20}") {
            let _ = in_words(&message);
        }
    }
}
