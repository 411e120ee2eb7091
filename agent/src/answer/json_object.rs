//! Finds the relevant JSON object in a text with other content.

use serde_json::{Map, Value};
use thiserror::Error;

/// An object and the text around it.
#[derive(Debug, PartialEq)]
pub(crate) struct FoundObject<'a> {
    pub(crate) object: Map<String, Value>,
    pub(crate) before: &'a str,
    pub(crate) after: &'a str,
    /// The closing brackets that were missing at the end of the text. Normally empty.
    pub(crate) appended: String,
}

/// Why no object was found.
#[derive(Debug, Error)]
pub(crate) enum NotFound {
    #[error("There is no JSON object in the answer.")]
    NoObject,
    #[error("The JSON is not valid: {problem} (line {line}, column {column} of the answer).")]
    Invalid { problem: String, line: usize, column: usize },
}

/// Finds the first object in `text` that is `wanted`. The object may lack closing brackets at the end of the text. If
/// there is none, the result describes the first position that resembles JSON: another object, or its syntax error.
///
/// The search starts at every opening brace, so braces and quotes in the surrounding prose have no effect. The content
/// of a valid object or of a string is never taken as a separate answer.
pub(crate) fn find(
    text: &str,
    wanted: impl Fn(&Map<String, Value>) -> bool,
) -> Result<FoundObject<'_>, NotFound> {
    let mut plausible = None;
    let mut implausible = None;
    let mut from = 0;
    while let Some(start) = text.get(from..).and_then(|rest| rest.find('{')).map(|offset| from + offset) {
        let outcome = read_at(text, start);
        from = match &outcome {
            Ok(found) if wanted(&found.object) => return outcome,
            // Continues after the object, so that its content is not taken as an answer.
            Ok(found) => text.len() - found.after.len(),
            Err(_) => start + 1,
        };
        // A brace before a quote is probably JSON, and its error helps the model more than that of a brace in prose.
        let has_a_key = text.get(start + 1..).is_some_and(|rest| rest.trim_start().starts_with('"'));
        if has_a_key { &mut plausible } else { &mut implausible }.get_or_insert(outcome);
    }
    plausible.or(implausible).unwrap_or(Err(NotFound::NoObject))
}

/// Parses the object whose opening brace is at `start`.
fn read_at(text: &str, start: usize) -> Result<FoundObject<'_>, NotFound> {
    let (before, candidate) = text.split_at_checked(start).unwrap_or(("", text));
    let mut values = serde_json::Deserializer::from_str(candidate).into_iter::<Map<String, Value>>();
    match values.next() {
        Some(Ok(object)) => {
            let after = candidate.get(values.byte_offset()..).unwrap_or_default();
            Ok(FoundObject { object, before, after, appended: String::new() })
        }
        Some(Err(error)) => {
            // Only a text that ends too early can be completed. Any other syntax error is final.
            if error.is_eof()
                && let Some((object, appended)) = close(candidate)
            {
                return Ok(FoundObject { object, before, after: "", appended });
            }
            Err(invalid(before, &error))
        }
        None => Err(NotFound::NoObject),
    }
}

/// Closes the brackets that are open at the end of `unclosed`. Returns the object and the added brackets. A text that
/// ends inside a string is not closed, because the missing part is unknown.
fn close(unclosed: &str) -> Option<(Map<String, Value>, String)> {
    let mut open = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    for character in unclosed.chars() {
        match (in_string, character) {
            (true, _) if escaped => escaped = false,
            (true, '\\') => escaped = true,
            (_, '"') => in_string = !in_string,
            (true, _) => {}
            (false, '{') => open.push('}'),
            (false, '[') => open.push(']'),
            (false, '}' | ']') => {
                // A bracket that closes another kind than the open one is an error that brackets at the end cannot
                // repair.
                open.pop().filter(|expected| *expected == character)?;
            }
            (false, _) => {}
        }
    }
    let appended: String = open.into_iter().rev().collect();
    let object = serde_json::from_str(&format!("{unclosed}{appended}")).ok().filter(|_| !in_string)?;
    Some((object, appended))
}

/// Returns the error with its position in the whole text.
fn invalid(before: &str, error: &serde_json::Error) -> NotFound {
    let problem = error.to_string();
    let problem = problem.split(" at line ").next().unwrap_or_default().to_owned();
    let last_line = before.rsplit('\n').next().unwrap_or_default();
    let column = if error.line() == 1 { last_line.len() + error.column() } else { error.column() };
    NotFound::Invalid { problem, line: before.matches('\n').count() + error.line(), column }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find_x(text: &str) -> Result<FoundObject<'_>, NotFound> {
        find(text, |object| object.contains_key("x"))
    }

    #[test]
    fn the_first_wanted_object_is_found_among_braces_and_other_objects() {
        let text = "set ${HOME} {} {\"y\": {\"x\": 0}} then {\"x\": \"}{\"} and {\"x\": 2}";
        let found = find_x(text).unwrap();
        assert_eq!(found.object["x"], "}{");
        assert_eq!(found.before, "set ${HOME} {} {\"y\": {\"x\": 0}} then ");
        assert_eq!(found.after, " and {\"x\": 2}");
        assert_eq!(found.appended, "");
    }

    #[test]
    fn missing_brackets_at_the_end_are_appended() {
        let found = find_x("{\"x\": [{\"a\": \"\\\"{\"}, {\"b\": 1").unwrap();
        assert_eq!(found.appended, "}]}");
        assert_eq!(found.object["x"][1]["b"], 1);
    }

    #[test]
    fn a_text_cut_inside_a_string_or_a_value_is_not_closed() {
        for text in ["{\"x\": \"rm -r", "{\"x\": \"a\", ", "{\"x\": tr", "{\"x\": \"\\", "{\"x\""] {
            assert!(matches!(find_x(text), Err(NotFound::Invalid { .. })), "{text}");
        }
    }

    #[test]
    fn the_error_names_the_place_in_the_whole_text() {
        let error = find_x("{not this}\nhere: {\"x\": 1 \"y\": 2}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "The JSON is not valid: expected `,` or `}` (line 2, column 15 of the answer)."
        );
        assert_eq!(find_x("no braces").unwrap_err().to_string(), "There is no JSON object in the answer.");
    }

    #[test]
    fn another_object_is_better_than_none() {
        assert!(find_x("{} and {\"y\": 1}").unwrap().object.contains_key("y"));
        assert!(find_x("only {}").unwrap().object.is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_taken_apart_without_loss(text in "([{}\\[\\]\",:x1 \\\\\n]|.){0,60}") {
            if let Ok(found) = find_x(&text) {
                prop_assert!(text.starts_with(found.before));
                prop_assert!(text.ends_with(found.after));
            }
        }
    }
}
