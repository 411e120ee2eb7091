//! Secrets taken out of text that is logged, kept, or told on.

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

use regex::Regex;

/// What stands in a secret's place.
const REDACTED: &str = "[redacted]";

/// Headers whose values are secrets, whoever's they are.
const SECRET_HEADERS: [&str; 7] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "cookie",
    "set-cookie",
];

/// Shorter ones are words that stand everywhere.
const SHORTEST_SECRET: usize = 8;

/// What is a secret in a text: keys of trials, values of headers, what fits a pattern, and secrets that are known.
#[derive(Debug)]
pub struct Redaction {
    keys: Option<Regex>,
    headers: Option<Regex>,
    patterns: Vec<Regex>,
    known: RwLock<Vec<Known>>,
}

/// A secret itself, which is not printed.
struct Known(String);

/// A header name or a pattern that cannot be looked for.
#[derive(Debug, thiserror::Error)]
#[error("{what} {text:?} cannot be redacted: {reason}")]
pub struct InvalidRedaction {
    what: &'static str,
    text: String,
    reason: String,
}

impl Redaction {
    /// With these header names and regular expressions besides what is a secret always.
    pub fn new(headers: &[String], patterns: &[String]) -> Result<Self, InvalidRedaction> {
        let invalid = |what, text: &str, reason: &dyn std::fmt::Display| InvalidRedaction {
            what,
            text: text.to_owned(),
            reason: reason.to_string(),
        };
        let mut names: Vec<_> = SECRET_HEADERS.map(regex::escape).into();
        for header in headers {
            http::HeaderName::from_bytes(header.as_bytes())
                .map_err(|error| invalid("the header name", header, &error))?;
            names.push(regex::escape(header));
        }
        let mut compiled = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let found = Regex::new(pattern).map_err(|error| invalid("the pattern", pattern, &error))?;
            // It would stand between any two characters.
            if found.is_match("") {
                return Err(invalid("the pattern", pattern, &"it fits the empty text"));
            }
            compiled.push(found);
        }
        let ours =
            |pattern: &str| Regex::new(pattern).map_err(|error| invalid("the pattern", pattern, &error));
        Ok(Self {
            keys: Some(ours(r"sk-[0-9A-Fa-f]{64}")?),
            // As a header line, also at an escaped line end, a member of a JSON object, or of one that is quoted in
            // another.
            headers: Some(ours(&format!(
                r#"(?i)(\b|\\[nrt])({})(\\*["']?\s*[:=]\s*\\*["']?)[^"'\\\r\n]+"#,
                names.join("|")
            ))?),
            patterns: compiled,
            known: RwLock::default(),
        })
    }

    /// Takes note of a secret that is to stand nowhere.
    pub(crate) fn learn(&self, secret: &str) {
        if secret.len() >= SHORTEST_SECRET {
            self.known.write().unwrap_or_else(PoisonError::into_inner).push(Known(secret.to_owned()));
        }
    }

    /// The text without secrets; borrowed where it has none.
    pub fn redacted<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for Known(secret) in self.known.read().unwrap_or_else(PoisonError::into_inner).iter() {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), REDACTED));
            }
        }
        for pattern in self.keys.iter().chain(&self.patterns) {
            replace(&mut text, pattern, REDACTED);
        }
        if let Some(pattern) = &self.headers {
            replace(&mut text, pattern, "${1}${2}${3}[redacted]");
        }
        text
    }
}

impl Default for Redaction {
    /// What is a secret always.
    fn default() -> Self {
        let nothing = Self { keys: None, headers: None, patterns: Vec::new(), known: RwLock::default() };
        Self::new(&[], &[]).unwrap_or(nothing)
    }
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Known(…)")
    }
}

fn replace(text: &mut Cow<'_, str>, pattern: &Regex, by: &str) {
    if let Cow::Owned(replaced) = pattern.replace_all(text, by) {
        *text = Cow::Owned(replaced);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        let redaction = Redaction::new(&["X-My-Secret".to_owned()], &["sk-[a-z]{4,}".to_owned()]).unwrap();
        redaction.learn("the-upstream-key");
        let key = format!("sk-{}", "0a".repeat(32));
        for (text, redacted) in [
            ("nothing here".to_owned(), "nothing here"),
            (format!("no trial {key}/v1"), "no trial [redacted]/v1"),
            ("bad Bearer the-upstream-key!".to_owned(), "bad Bearer [redacted]!"),
            ("Authorization: Basic dTpw\nHost: h".to_owned(), "Authorization: [redacted]\nHost: h"),
            (r#"{"x-my-secret": "s", "a": 1}"#.to_owned(), r#"{"x-my-secret": "[redacted]", "a": 1}"#),
            (r#"{\"x-api-key\":\"s\"}"#.to_owned(), r#"{\"x-api-key\":\"[redacted]\"}"#),
            (r"a: b\nX-Api-Key: s\nHost: h".to_owned(), r"a: b\nX-Api-Key: [redacted]\nHost: h"),
            ("saw sk-abcdef".to_owned(), "saw [redacted]"),
        ] {
            assert_eq!(redaction.redacted(&text), redacted);
        }
    }

    #[test]
    fn what_cannot_be_looked_for_is_said() {
        for (headers, patterns, part) in
            [(vec!["a b"], vec![], "a b"), (vec![], vec!["("], "pattern"), (vec![], vec!["x*"], "empty text")]
        {
            let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect::<Vec<_>>();
            let error = Redaction::new(&owned(headers), &owned(patterns)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_known_is_not_printed_and_words_are_no_secrets() {
        let redaction = Redaction::default();
        redaction.learn("the-upstream-key");
        redaction.learn("short");
        assert!(!format!("{redaction:?}").contains("upstream"));
        assert_eq!(redaction.redacted("a short text"), "a short text");
    }

    /// Made once: its expressions cost more than what they are tried on.
    static KNOWING: std::sync::LazyLock<Redaction> = std::sync::LazyLock::new(|| {
        let redaction = Redaction::default();
        redaction.learn("§the-secret§");
        redaction
    });

    proptest! {
        #[test]
        fn no_text_panics_or_keeps_a_known_secret(before in ".*", after in ".*") {
            let redaction = &*KNOWING;
            let text = format!("{before}§the-secret§{after}");
            prop_assert!(!redaction.redacted(&text).contains("the-secret"));
        }
    }
}
