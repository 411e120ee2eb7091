//! Extracts the text of a custom tool call from the arguments of its function, while they arrive.

use serde_json::Value;

/// Parses `{"input": "…"}` piece by piece. Arguments of another form are parsed when they are complete.
#[derive(Debug, Default)]
pub(super) struct CustomInput {
    arguments: String,
    /// The length of the arguments that were parsed, in bytes.
    read: usize,
    state: State,
    input: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the quote that opens the text.
    #[default]
    Ahead,
    Inside,
    /// After the quote that closes the text.
    Behind,
    /// The arguments have another form.
    Other,
}

/// The characters before the text, without white space.
const OPENING: &str = "{\"input\":\"";
/// The positions in `OPENING` at which white space is permitted: before the brace, the key, the colon and the text.
const BETWEEN: [usize; 4] = [0, 1, 8, 9];

impl CustomInput {
    /// Adds a piece of the arguments, and returns the text that it completes.
    pub(super) fn take(&mut self, piece: &str) -> &str {
        self.arguments.push_str(piece);
        let before = self.input.len();
        if self.state == State::Ahead {
            self.open();
        }
        if self.state == State::Inside {
            self.read_text();
        }
        self.input.get(before..).unwrap_or_default()
    }

    /// Ends the arguments, and returns the rest of the text. Arguments that are not valid JSON are themselves the text.
    pub(super) fn finish(&mut self) -> &str {
        let before = self.input.len();
        if matches!(self.state, State::Ahead | State::Other) {
            let parsed = serde_json::from_str::<Value>(&self.arguments).ok();
            let input = parsed.as_ref().and_then(|arguments| arguments.get("input")?.as_str());
            self.input = input.unwrap_or(&self.arguments).to_owned();
            self.state = State::Behind;
        }
        self.input.get(before..).unwrap_or_default()
    }

    /// Returns the text so far.
    pub(super) fn input(&self) -> &str {
        &self.input
    }

    fn open(&mut self) {
        let mut matched = 0;
        for (at, found) in self.arguments.char_indices() {
            if OPENING.get(matched..).is_some_and(|rest| rest.starts_with(found)) {
                matched += found.len_utf8();
                if matched == OPENING.len() {
                    self.state = State::Inside;
                    self.read = at + found.len_utf8();
                    return;
                }
            } else if !(found.is_ascii_whitespace() && BETWEEN.contains(&matched)) {
                self.state = State::Other;
                return;
            }
        }
    }

    fn read_text(&mut self) {
        while let Some(rest) = self.arguments.get(self.read..).filter(|rest| !rest.is_empty()) {
            let plain = rest.find(['"', '\\']).unwrap_or(rest.len());
            self.input.push_str(rest.get(..plain).unwrap_or_default());
            let special = rest.get(plain..).unwrap_or_default();
            self.read += plain;
            if special.starts_with('"') {
                self.state = State::Behind;
                return;
            }
            // An escape that is cut off waits for the next piece.
            match Escape::at_start_of(special) {
                Some(escape) => {
                    self.input.push(escape.meaning);
                    self.read += escape.length;
                }
                None => return,
            }
        }
    }
}

/// An escape sequence of a JSON string.
struct Escape {
    meaning: char,
    length: usize,
}

impl Escape {
    /// Parses an escape sequence. Returns `None` if it is incomplete.
    fn at_start_of(text: &str) -> Option<Self> {
        let meaning = match text.chars().nth(1)? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => return Self::unicode(text),
            same @ ('"' | '\\' | '/') => same,
            // Models sometimes write a backslash without escaping it. JSON has no such escape sequence, so the
            // backslash is meant.
            _ => return Some(Self { meaning: '\\', length: 1 }),
        };
        Some(Self { meaning, length: 2 })
    }

    fn unicode(text: &str) -> Option<Self> {
        const LENGTH: usize = 6;
        let Ok(first) = code_unit(text)? else { return Some(Self { meaning: '\\', length: 1 }) };
        if let Some(meaning) = char::from_u32(first.into()) {
            return Some(Self { meaning, length: LENGTH });
        }
        // Half of a surrogate pair alone is no character.
        let lone = Some(Self { meaning: char::REPLACEMENT_CHARACTER, length: LENGTH });
        let rest = text.get(LENGTH..)?;
        if !"\\u".starts_with(rest.get(..rest.len().min(2)).unwrap_or_default()) {
            return lone;
        }
        let Ok(second) = code_unit(rest)? else { return lone };
        match char::decode_utf16([first, second]).next() {
            Some(Ok(meaning)) => Some(Self { meaning, length: 2 * LENGTH }),
            _ => lone,
        }
    }
}

/// Parses the UTF-16 code unit of a `\uXXXX`. Returns `None` if it is incomplete, and an error if it is malformed.
fn code_unit(text: &str) -> Option<Result<u16, ()>> {
    let digits = text.as_bytes().get(2..)?;
    let digits = digits.get(..digits.len().min(4))?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Some(Err(()));
    }
    if digits.len() < 4 {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    Some(u16::from_str_radix(digits, 16).map_err(drop))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(pieces: &[&str]) -> (String, String) {
        let mut custom = CustomInput::default();
        let mut streamed = String::new();
        for piece in pieces {
            streamed.push_str(custom.take(piece));
        }
        streamed.push_str(custom.finish());
        (streamed, custom.input().to_owned())
    }

    /// Cuts the text at the character boundaries that the numbers select.
    fn cut(text: &str, at: &[usize]) -> Vec<String> {
        let mut pieces = vec![String::new()];
        for (index, character) in text.chars().enumerate() {
            if at.contains(&index) {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push(character);
        }
        pieces
    }

    #[test]
    fn escapes_mean_what_they_mean_in_json() {
        for (arguments, input) in [
            (r#"{"input": "a\n\"b\"\\ \/ \u00e9 \ud83d\ude00"}"#, "a\n\"b\"\\ / é 😀"),
            (r#" { "input" : "x" , "more": 1}"#, "x"),
            (r#"{"more":1,"input":"y"}"#, "y"),
            (r#"{"input":"cut \u00"#, "cut "),
            (r#"{"input":"\q \uZZ \ud83d."}"#, "\\q \\uZZ \u{fffd}."),
            (r#"{"in put":"z"}"#, r#"{"in put":"z"}"#),
            (r#"{"input":7}"#, r#"{"input":7}"#),
            ("*** Begin Patch", "*** Begin Patch"),
            ("", ""),
        ] {
            assert_eq!(read(&[arguments]), (input.to_owned(), input.to_owned()), "{arguments}");
        }
    }

    proptest! {
        #[test]
        fn the_text_comes_back_however_it_is_cut(text: String, at in prop::collection::vec(0usize..200, 0..20), pretty: bool) {
            let arguments = json!({"input": text});
            let arguments = if pretty { format!("{arguments:#}") } else { arguments.to_string() };
            let pieces = cut(&arguments, &at);
            let (streamed, whole) = read(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(&streamed, &text);
            prop_assert_eq!(whole, text);
        }

        #[test]
        fn any_arguments_read_alike_however_they_are_cut(
            arguments in r#"(\{"input": ?")?([a-z"\\u0-9é{}:]|\\u[dD][89a-f][0-9a-f]{2})*"#,
            at in prop::collection::vec(0usize..60, 0..20),
        ) {
            let pieces = cut(&arguments, &at);
            let (streamed, whole) = read(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(&streamed, &whole);
            prop_assert_eq!(read(&[&arguments]).1, whole);
        }
    }
}
