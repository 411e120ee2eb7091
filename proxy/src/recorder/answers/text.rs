//! A JSON string that arrives in pieces.

use memchr::memchr;
use serde_json::Value;

/// The concatenated contents of several JSON strings, with their escapes.
///
/// The escapes are decoded once at the end. The two halves of a surrogate pair may thus arrive in two pieces, as from a
/// server that escapes non-ASCII text.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Appends the content of a JSON string. `None` if the text is not a string.
    pub(super) fn append(&mut self, json: &str) -> Option<()> {
        self.0.push_str(json.strip_prefix('"')?.strip_suffix('"')?);
        Some(())
    }

    /// Sets a value that arrives in one piece and may be repeated. `None` if the text is not a string, or differs from
    /// the earlier value.
    pub(super) fn once(&mut self, json: &str) -> Option<()> {
        if self.0.is_empty() {
            return self.append(json);
        }
        let piece = json.strip_prefix('"')?.strip_suffix('"')?;
        (piece.is_empty() || piece == self.0).then_some(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the length of the contents in bytes, with their escapes.
    pub(super) fn length(&self) -> usize {
        self.0.len()
    }

    /// Appends the string to `json`, as serde writes it, or `or` if it is empty. `None` if its escapes are invalid.
    pub(super) fn write(self, or: &str, json: &mut String) -> Option<()> {
        if is_as_written(&self.0) {
            let parts = if self.is_empty() { ["", or, ""] } else { ["\"", &self.0, "\""] };
            parts.into_iter().for_each(|part| json.push_str(part));
        } else {
            json.push_str(&Value::from(self.finish()?).to_string());
        }
        Some(())
    }

    /// Returns the string, if it is not empty. `None` if its escapes are invalid.
    pub(super) fn finish(self) -> Option<Option<String>> {
        let has_escapes = memchr(b'\\', self.0.as_bytes()).is_some();
        let text = if has_escapes || self.0.bytes().any(|byte| byte < b' ') {
            serde_json::from_str(&format!("\"{}\"", self.0)).ok()?
        } else {
            self.0
        };
        Some(Some(text).filter(|text| !text.is_empty()))
    }
}

/// Whether serde would write these contents of a string in the same way: all escapes have one letter, and no character
/// lacks a necessary escape.
fn is_as_written(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let Some(at) = memchr(b'\\', rest) {
        let Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') = rest.get(at + 1) else { return false };
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    // A quote without a backslash cannot occur: the texts are taken from between the quotes of JSON strings.
    text.bytes().all(|byte| byte >= b' ')
}
