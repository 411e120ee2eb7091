//! A string of JSON that comes in pieces.

use memchr::memchr;

/// What stands between the quotes, with its escapes, of one string after the other.
///
/// Read as one string at the end. So the two halves of a character beyond 16 bits may come in two pieces, as they do
/// of a server that escapes what is not ASCII.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Appends what a JSON text says; none if that is no string.
    pub(super) fn append(&mut self, json: &str) -> Option<()> {
        self.0.push_str(json.strip_prefix('"')?.strip_suffix('"')?);
        Some(())
    }

    /// For what is said in one piece, and at most repeated: none if it is no string, or another than before.
    pub(super) fn once(&mut self, json: &str) -> Option<()> {
        if self.0.is_empty() {
            return self.append(json);
        }
        let piece = json.strip_prefix('"')?.strip_suffix('"')?;
        (piece.is_empty() || piece == self.0).then_some(())
    }

    /// The string, if it is not empty. None at all if the escapes make no text.
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
