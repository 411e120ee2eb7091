//! Removes secrets from text before it is logged, stored or sent on.

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

use memchr::memchr2;
use regex::Regex;

/// The replacement for a secret.
const REDACTED: &str = "[redacted]";

/// Headers whose values are secrets in every program.
const SECRET_HEADERS: [&str; 7] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "cookie",
    "set-cookie",
];

/// Minimum length of a known secret, in bytes. Shorter secrets are words that occur in ordinary text.
const SHORTEST_SECRET: usize = 8;

/// Minimum length of a key or token in bytes: its prefix and 64 hexadecimal digits.
const SHORTEST_KEY: usize = 67;

/// Recognizes secrets in text: keys of trials, tokens of `rolltap admin-token`, values of headers, matches of configured
/// patterns, and known secrets.
#[derive(Debug)]
pub struct Redaction {
    keys: Option<Regex>,
    headers: Option<Regex>,
    patterns: Vec<Regex>,
    known: RwLock<Vec<Known>>,
}

/// A known secret. Its `Debug` output does not show it.
struct Known(String);

/// A header name or a pattern that cannot be redacted.
#[derive(Debug, thiserror::Error)]
#[error("{what} {text:?} cannot be redacted: {reason}")]
pub struct InvalidRedaction {
    what: &'static str,
    text: String,
    reason: String,
}

impl Redaction {
    /// Adds these header names and regular expressions to the built-in secrets.
    ///
    /// # Errors
    /// Returns an error for an invalid header name, and for a pattern that is invalid or matches the empty text.
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
            // Such a pattern matches between any two characters, so it would insert the replacement everywhere.
            if found.is_match("") {
                return Err(invalid("the pattern", pattern, &"it fits the empty text"));
            }
            compiled.push(found);
        }
        let ours =
            |pattern: &str| Regex::new(pattern).map_err(|error| invalid("the pattern", pattern, &error));
        Ok(Self {
            keys: Some(ours(r"(?:sk|rolltap-admin)-[0-9A-Fa-f]{64}")?),
            // A header occurs as a line (also after an escaped line end), as a member of a JSON object, or in JSON that
            // is quoted within JSON.
            headers: Some(ours(&format!(
                r#"(?i)(\b|\\[nrt])({})(\\*["']?\s*[:=]\s*\\*["']?)[^"'\\\r\n]+"#,
                names.join("|")
            ))?),
            patterns: compiled,
            known: RwLock::default(),
        })
    }

    /// Adds a secret, such as the API key of an upstream. Secrets of less than 8 bytes are ignored.
    pub(crate) fn learn(&self, secret: &str) {
        if secret.len() >= SHORTEST_SECRET {
            // A poisoned lock is still usable, because the list is never left half written.
            self.known.write().unwrap_or_else(PoisonError::into_inner).push(Known(secret.to_owned()));
        }
    }

    /// Returns the text without secrets. The result is borrowed if nothing was replaced.
    pub fn redacted<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for Known(secret) in self.known.read().unwrap_or_else(PoisonError::into_inner).iter() {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), REDACTED));
            }
        }
        // Most texts are short names, which a glance rules out.
        let keys = self.keys.as_ref().filter(|_| text.len() >= SHORTEST_KEY);
        for pattern in keys.into_iter().chain(&self.patterns) {
            replace(&mut text, pattern, REDACTED);
        }
        if let Some(pattern) = &self.headers
            && memchr2(b':', b'=', text.as_bytes()).is_some()
        {
            replace(&mut text, pattern, "${1}${2}${3}[redacted]");
        }
        text
    }
}

impl Default for Redaction {
    /// Recognizes the built-in secrets only.
    fn default() -> Self {
        // The built-in patterns are valid, so this value is unused. It avoids a panic.
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

    /// Created once: compiling its patterns takes longer than the tests' texts do.
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
