//! A JSON string that arrives in pieces.

use memchr::memchr;

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
