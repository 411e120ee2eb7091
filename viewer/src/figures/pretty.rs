//! JSON with line breaks and indentation. Numbers and texts keep their spelling, because nothing is parsed.

/// A text for reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pretty {
    pub(crate) text: String,
    /// Whether `text` ends before the end of the source.
    pub(crate) is_cut: bool,
}

/// Indents the JSON texts of `source`, one of each line. Lists of numbers stay on one line. `most` limits the bytes that
/// the result has as HTML.
pub(crate) fn pretty(source: &str, most: usize) -> Pretty {
    let mut writer = Writer::default();
    let mut letters = source.chars().peekable();
    while let Some(letter) = letters.next() {
        if writer.html_bytes >= most {
            return Pretty { text: writer.text, is_cut: true };
        }
        let next = letters.peek().copied();
        writer.add(letter, next);
    }
    Pretty { text: writer.text, is_cut: false }
}

#[derive(Default)]
struct Writer {
    text: String,
    html_bytes: usize,
    /// For each open object and list, whether its members have lines of their own.
    open: Vec<bool>,
    is_in_string: bool,
    is_escaped: bool,
}

impl Writer {
    fn add(&mut self, letter: char, next: Option<char>) {
        if self.is_in_string {
            self.push(letter);
            self.is_in_string = self.is_escaped || letter != '"';
            self.is_escaped = !self.is_escaped && letter == '\\';
            return;
        }
        match letter {
            '{' | '[' => {
                let has_lines = match letter {
                    '{' => next != Some('}'),
                    _ => matches!(next, Some('{' | '[')),
                };
                self.push(letter);
                self.open.push(has_lines);
                self.break_line(has_lines);
            }
            '}' | ']' => {
                let has_lines = self.open.pop().unwrap_or_default();
                self.break_line(has_lines);
                self.push(letter);
            }
            ',' => {
                self.push(letter);
                let has_lines = self.open.last().copied().unwrap_or_default();
                self.break_line(has_lines);
                if !has_lines {
                    self.push(' ');
                }
            }
            ':' => {
                self.push(letter);
                self.push(' ');
            }
            '\n' if self.open.is_empty() => self.push(letter),
            ' ' | '\t' | '\r' | '\n' => {}
            _ => {
                self.push(letter);
                self.is_in_string = letter == '"';
            }
        }
    }

    fn break_line(&mut self, is_wanted: bool) {
        if is_wanted {
            self.push('\n');
            for _ in 0..self.open.len() * 2 {
                self.push(' ');
            }
        }
    }

    fn push(&mut self, letter: char) {
        self.text.push(letter);
        self.html_bytes += html_length(letter);
    }
}

/// Returns the number of bytes that a character has as HTML.
pub(crate) fn html_length(letter: char) -> usize {
    match letter {
        '"' => "&quot;".len(),
        '&' => "&amp;".len(),
        '<' | '>' => "&lt;".len(),
        _ => letter.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use maud::html;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn members_have_lines_and_numbers_share_one() {
        let source = r#"{"ids":[1,2.50],"text":"a,\"{b","none":{},"calls":[{"x":[]}]}"#;
        let expected = "{\n  \"ids\": [1, 2.50],\n  \"text\": \"a,\\\"{b\",\n  \"none\": {},\n  \"calls\": [\n    {\n      \"x\": []\n    }\n  ]\n}";
        assert_eq!(pretty(source, 1000), Pretty { text: expected.to_owned(), is_cut: false });
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<i64>().prop_map(Value::from), any::<String>().prop_map(Value::from)];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_value_stays_the_same(value in any_json()) {
            let shown = pretty(&value.to_string(), usize::MAX);
            prop_assert_eq!(serde_json::from_str::<Value>(&shown.text).unwrap(), value);
        }

        #[test]
        fn the_limit_holds_for_any_text(source: String, most in 0_usize..200) {
            let shown = pretty(&source, most);
            let html = html! { (shown.text) }.into_string();
            // One letter may pass the limit, with its line break and indentation.
            prop_assert!(html.len() <= most + 2 * source.len() + 16, "{} bytes", html.len());
            prop_assert!(shown.is_cut || pretty(&source, usize::MAX) == shown);
        }
    }

    #[test]
    fn deep_lists_end_at_the_limit() {
        let shown = pretty(&"[".repeat(100_000), 10_000);
        assert!(shown.is_cut && shown.text.len() < 11_000);
        assert_eq!(pretty(&json!([[]]).to_string(), 100).text, "[\n  []\n]");
    }
}
