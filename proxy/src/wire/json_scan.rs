//! Scans JSON text forward without building values, for the hot path through vLLM's answers.
//!
//! The scanner accepts the plain forms that vLLM writes. For other forms (an escape in a key, an unusual number) it
//! returns `None`, and the caller uses serde, which accepts every form and reports errors. Skipped values are only
//! checked as far as is necessary to find their end.

use memchr::{memchr, memchr2, memchr3};

/// A position between two tokens of a JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self::from(text, 0)
    }

    /// Starts at a position in bytes, which must be between two tokens.
    pub(crate) fn from(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }

    /// Reads an object. `member` is called after each colon, and must consume the value.
    pub(crate) fn object(&mut self, member: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.object_from(None, member)
    }

    /// Like [`Self::object`]. With a key, the cursor stands after the colon that follows this key, and only the rest of the
    /// object is read.
    pub(crate) fn object_from(
        &mut self,
        key: Option<&'a str>,
        mut member: impl FnMut(&mut Self, &'a str) -> Option<()>,
    ) -> Option<()> {
        let mut key = match key {
            Some(key) => key,
            None => {
                self.take(b'{')?;
                if self.next()? == b'}' {
                    self.at += 1;
                    return Some(());
                }
                self.key()?
            }
        };
        loop {
            member(self, key)?;
            key = match self.bump()? {
                b',' => self.key()?,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Reads the key of a member and its colon.
    fn key(&mut self) -> Option<&'a str> {
        let key = self.plain_string()?;
        self.take(b':')?;
        Some(key)
    }

    /// Reads an array. `item` is called before each item, and must consume it.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b'[')?;
        if self.next()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            item(self)?;
            match self.bump()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Reads a string without escapes. Returns `None` for any other value.
    pub(crate) fn plain_string(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let start = self.at;
        let end = start
            + find(self.rest(), |byte| matches!(byte, b'"' | b'\\'), |rest| memchr2(b'"', b'\\', rest))?;
        self.at = end + 1;
        (*self.text.as_bytes().get(end)? == b'"').then(|| self.text.get(start..end))?
    }

    /// Reads a finite number. Returns `None` for any other value.
    pub(crate) fn number(&mut self) -> Option<f64> {
        let text = self.value()?;
        if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return None;
        }
        text.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Consumes exactly this text if it comes next.
    pub(crate) fn exactly(&mut self, text: &str) -> Option<()> {
        self.rest().starts_with(text.as_bytes()).then(|| self.at += text.len())
    }

    /// Consumes what `read` reads. It gets the bytes that follow, and returns its result with the bytes that remain. They
    /// must begin after an ASCII character.
    pub(crate) fn read<T>(&mut self, read: impl FnOnce(&'a [u8]) -> Option<(T, &'a [u8])>) -> Option<T> {
        let (read, rest) = read(self.rest())?;
        self.at = self.text.len() - rest.len();
        Some(read)
    }

    /// Consumes `null` if it comes next, and returns whether it did.
    pub(crate) fn null(&mut self) -> bool {
        let is_null = self.next() == Some(b'n') && self.rest().starts_with(b"null");
        if is_null {
            self.at += 4;
        }
        is_null
    }

    /// Whether an array comes next.
    pub(crate) fn is_at_array(&mut self) -> bool {
        self.next() == Some(b'[')
    }

    /// Whether an object comes next.
    pub(crate) fn is_at_object(&mut self) -> bool {
        self.next() == Some(b'{')
    }

    /// Consumes any value and returns its text, or `Some(None)` for `null`.
    pub(crate) fn non_null(&mut self) -> Option<Option<&'a str>> {
        if self.null() { Some(None) } else { self.value().map(Some) }
    }

    /// Consumes any value and returns its text.
    pub(crate) fn value(&mut self) -> Option<&'a str> {
        let first = self.next()?;
        let start = self.at;
        match first {
            b'"' => self.pass_string()?,
            b'{' | b'[' => self.pass_nested()?,
            b',' | b':' | b'}' | b']' => return None,
            _ => self.at += self.rest().iter().take_while(|&&byte| is_scalar(byte)).count(),
        }
        let text = self.text.get(start..self.at)?;
        // Strings, objects and arrays are complete if their end was found. Other values must be literals.
        (matches!(first, b'"' | b'{' | b'[') || is_literal(text)).then_some(text)
    }

    /// Whether only white space remains.
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.next().is_none()
    }

    /// Returns the position in the text, in bytes.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    fn pass_string(&mut self) -> Option<()> {
        let start = self.at + 1;
        self.at = start;
        loop {
            // Long texts have far fewer quotes than escapes, so the search is for quotes alone.
            let quote = self.at + find(self.rest(), |byte| byte == b'"', |rest| memchr(b'"', rest))?;
            self.at = quote + 1;
            let before = self.text.as_bytes().get(start..quote)?;
            let backslashes = before.iter().rev().take_while(|&&byte| byte == b'\\').count();
            // An odd number of backslashes escapes the quote.
            if backslashes % 2 == 0 {
                return Some(());
            }
        }
    }

    fn pass_nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.text.as_bytes().get(self.at)? {
                b'"' => {
                    // Brackets within a string do not count.
                    self.pass_string()?;
                    continue;
                }
                b'[' => {
                    depth += 1;
                    self.at += 1;
                    self.pass_flat_items();
                    continue;
                }
                b'{' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Skips the items of a list up to its `]` if there is no string and no nested list before it. Lists of thousands
    /// of ids are skipped in one search.
    fn pass_flat_items(&mut self) {
        let rest = self.rest();
        let stops = |byte| matches!(byte, b']' | b'[' | b'"');
        let end = find(rest, stops, |rest| memchr3(b']', b'[', b'"', rest));
        if let Some(end) = end.filter(|&end| rest.get(end) == Some(&b']')) {
            self.at += end;
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Skips white space and returns the next byte without consuming it.
    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn bump(&mut self) -> Option<u8> {
        let byte = self.next();
        self.at += 1;
        byte
    }

    fn take(&mut self, expected: u8) -> Option<()> {
        (self.bump()? == expected).then_some(())
    }
}

/// Up to this number of bytes, a plain loop is faster than a vector search with its start-up cost.
const NEAR: usize = 24;

/// Returns the position of the first byte for which `is` holds. `search` is used beyond the first `NEAR` bytes.
fn find(bytes: &[u8], is: impl Fn(u8) -> bool, search: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
    let near = bytes.len().min(NEAR);
    let (begin, rest) = bytes.split_at(near);
    begin.iter().position(|&byte| is(byte)).or_else(|| search(rest).map(|at| near + at))
}

fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

/// Whether the text is a number by JSON's grammar, `null`, `true` or `false`.
fn is_literal(text: &str) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if matches!(text, "null" | "true" | "false") {
        return true;
    }
    let mut rest = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let whole = digits(rest);
    // JSON permits no leading zeros.
    if whole == 0 || (whole > 1 && rest.first() == Some(&b'0')) {
        return false;
    }
    rest = rest.get(whole..).unwrap_or_default();
    if let Some(fraction) = rest.strip_prefix(b".") {
        let length = digits(fraction);
        if length == 0 {
            return false;
        }
        rest = fraction.get(length..).unwrap_or_default();
    }
    match rest {
        [] => true,
        [b'e' | b'E', b'+' | b'-', power @ ..] | [b'e' | b'E', power @ ..] => {
            !power.is_empty() && digits(power) == power.len()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_passed_over_whole() {
        for value in [r#""a\"]}\\""#, "-1.5e+3", "null", "true", r#"[1,{"a":"]"},[]]"#, "{}", "\"\u{e9}\""] {
            let text = format!(" [ {value} , 7 ] ");
            let mut cursor = Cursor::new(&text);
            let mut seen = Vec::new();
            cursor.array(|cursor| cursor.value().map(|value| seen.push(value))).unwrap();
            assert_eq!(seen, [value, "7"]);
            assert!(cursor.is_at_end());
        }
    }

    #[test]
    fn numbers_follow_jsons_grammar() {
        for good in ["0", "-0", "10", "1.50", "1E3", "-2e-7", "1e400", "true", "null"] {
            assert_eq!(Cursor::new(good).value(), Some(good));
        }
        for bad in ["01", "-", "1.", ".5", "+1", "1e", "nul", "1e+", "--1"] {
            assert_eq!(Cursor::new(bad).value(), None, "{bad}");
        }
    }

    #[test]
    fn an_escaped_key_and_an_infinite_number_are_left_to_serde() {
        assert_eq!(Cursor::new(r#"{"\u0061":1}"#).object(|cursor, _| cursor.value().map(drop)), None);
        assert_eq!(Cursor::new("1e999").number(), None);
        assert_eq!(Cursor::new("inf").number(), None);
        assert_eq!(Cursor::new(" -0.5,").number(), Some(-0.5));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            let mut cursor = Cursor::new(&text);
            while cursor.value().is_some() {}
            let _ = Cursor::new(&text).object(|cursor, _| cursor.non_null().map(drop));
            let _ = Cursor::new(&text).array(|cursor| cursor.number().map(drop));
        }

        #[test]
        fn text_that_only_looks_like_json_never_panics(
            tokens in prop::collection::vec(prop::sample::select(&["{", "}", "[", "]", "\"", "\\", ":", ",", "é", "1", "null", " "][..]), 0..24),
        ) {
            let text = tokens.concat();
            let _ = Cursor::new(&text).object(|cursor, _| cursor.value().map(drop));
            let mut cursor = Cursor::new(&text);
            while cursor.value().is_some() {}
        }
    }
}
