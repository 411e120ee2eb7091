//! Compares a sampled answer with the answer as the template shows it later. The result is the same text, the same
//! answer in another spelling, or something else.
//!
//! The comparison knows no model. Templates trim text, rewrite tool arguments, and add or drop empty reasoning blocks.
//! These changes affect only white space next to markup, JSON objects, and tags that are closed as soon as they are
//! opened. Any other difference means that text was dropped, added or moved.

use rolltap_rollout::continuation::Class;
use serde_json::Value;

use super::message_eq::in_one_spelling;

/// Compares the text sampled after `generation_prompt` with `shown`, the answer as the template shows it later. `shown`
/// includes the header of the answer's turn.
pub(super) fn class_of(generation_prompt: &str, sampled: &str, shown: &str) -> Class {
    let stood = format!("{generation_prompt}{sampled}");
    if stood == shown {
        return Class::Equal;
    }
    // The header names the speaker. White space after the header belongs to the answer, and may be dropped.
    let header = header(generation_prompt, shown);
    let without = |text: &str| plain(text.get(header..).unwrap_or_default());
    if without(&stood) == without(shown) { Class::Respelled } else { Class::Rewritten }
}

/// Returns the number of bytes that both texts share before the answer begins. The header never ends inside a tag.
fn header(generation_prompt: &str, shown: &str) -> usize {
    let same = generation_prompt.bytes().zip(shown.bytes()).take_while(|(a, b)| a == b).count();
    // A comparison of bytes may stop inside a character.
    let same = (0..=same).rev().find(|&at| shown.is_char_boundary(at)).unwrap_or_default();
    let header = shown.get(..same).unwrap_or_default();
    match (header.rfind('<'), header.rfind('>')) {
        (Some(open), close) if close.is_none_or(|close| close < open) => open,
        _ => same,
    }
}

/// Returns one spelling for all texts with the same meaning.
fn plain(text: &str) -> String {
    let text = with_plain_objects(text);
    let mut text = without_white_space_at_markup(&text);
    // The removal of one block may leave the block around it empty.
    while let Some(shorter) = without_an_empty_block(&text) {
        text = without_white_space_at_markup(&shorter);
    }
    text
}

/// Writes every JSON object in one spelling. Drops replacement characters: they stand for truncated characters, which
/// no reader can read.
fn with_plain_objects(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(brace) = rest.find('{') {
        let (before, object) = rest.split_at(brace);
        out.push_str(before);
        let mut values = serde_json::Deserializer::from_str(object).into_iter::<Value>();
        rest = match values.next() {
            Some(Ok(value)) => {
                // Mark the object as markup, so that white space around it is ignored.
                out.push('<');
                out.push_str(&in_one_spelling(value).to_string());
                out.push('>');
                object.get(values.byte_offset()..).unwrap_or_default()
            }
            // This brace starts no JSON object, so it is ordinary text.
            _ => {
                out.push('{');
                object.get(1..).unwrap_or_default()
            }
        };
    }
    out.push_str(rest);
    out.retain(|c| c != char::REPLACEMENT_CHARACTER);
    out
}

/// Removes the white space at the ends and next to `<` and `>`.
fn without_white_space_at_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim();
    while let Some(start) = rest.find(char::is_whitespace) {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let length = from.find(|c: char| !c.is_whitespace()).unwrap_or(from.len());
        let (space, after) = from.split_at(length);
        if !(out.ends_with(['<', '>']) || after.starts_with(['<', '>'])) {
            out.push_str(space);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Removes the first tag that is closed as soon as it is opened, like `<think></think>` or `[THINK][/THINK]`. Returns
/// `None` if there is no such tag.
fn without_an_empty_block(text: &str) -> Option<String> {
    [("</", '<', '>'), ("[/", '[', ']')].into_iter().find_map(|(closing, open, close)| {
        text.match_indices(closing).find_map(|(at, _)| {
            let before = text.get(..at)?.trim_end().strip_suffix(close)?;
            let (before, name) = before.rsplit_once(open)?;
            let behind = text.get(at + closing.len()..)?.strip_prefix(name)?.strip_prefix(close)?;
            (!name.is_empty()).then(|| format!("{before}{behind}"))
        })
    })
}

#[cfg(test)]
mod tests {
    use Class::{Equal, Respelled, Rewritten};
    use proptest::prelude::*;

    use super::*;

    const HEADER: &str = "<|im_start|>assistant\n";

    fn class(sampled: &str, shown: &str) -> Class {
        class_of(HEADER, sampled, &format!("{HEADER}{shown}"))
    }

    #[test]
    fn reasoning_that_the_generation_prompt_begins_or_forbids() {
        let no_thoughts = format!("{HEADER}<think>\n\n</think>\n\n");
        for sampled in ["Hello", " Hello", "\nHello "] {
            assert_eq!(class_of(&no_thoughts, sampled, &format!("{HEADER}{sampled}")), Respelled);
        }
        let thoughts = format!("{HEADER}<think>\n");
        assert_eq!(class_of(&thoughts, "\n</think>\n\nHello", &format!("{HEADER}Hello")), Respelled);
        assert_eq!(class_of(&thoughts, "hm</think>Hello", &format!("{HEADER}Hello")), Rewritten);
        let call = "<tool_call>{}</tool_call>";
        assert_eq!(class_of(&thoughts, &format!("</think>{call}"), &format!("{HEADER}{call}")), Respelled);
    }

    #[test]
    fn spellings_of_one_answer() {
        for (sampled, shown) in [
            ("  Hello\n", "Hello"),
            ("<think>\n\n</think>\n\nHello", "Hello"),
            ("Hello", "<think>\n\n</think>\n\nHello"),
            ("[THINK] [/THINK]Hello", "Hello"),
            (
                "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":\"\\u00e9\"}}\n</tool_call>",
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"é\", \"b\": 1}}\n</tool_call>",
            ),
            ("a\n\n<tool_call>{\"x\":1}</tool_call> ", "a\n<tool_call>\n{\"x\": 1}\n</tool_call>"),
            ("cut \u{fffd}", "cut"),
        ] {
            assert_eq!(class(sampled, shown), Respelled, "{sampled:?} {shown:?}");
        }
        assert_eq!(class("Hello", "Hello"), Equal);
    }

    #[test]
    fn what_means_something_else() {
        for (sampled, shown) in [
            ("<think>\nbecause\n</think>\n\nHello", "Hello"),
            ("Hello", "Hello there"),
            ("a  b", "a b"),
            ("<tool_call>{\"x\":1}</tool_call>", "<tool_call>{\"x\":2}</tool_call>"),
            ("Hello", ""),
            ("one\ntwo", "one two"),
            ("{not json", "{ not json"),
        ] {
            assert_eq!(class(sampled, shown), Rewritten, "{sampled:?} {shown:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(a in r#"[<>/\[\]{}"a: \n\u{fffd}é]{0,24}"#, b in ".{0,9}") {
            class_of(&b, &a, &a);
            class_of(&a, &b, &a);
            prop_assert_eq!(class_of(&a, &b, &format!("{a}{b}")), Equal);
        }

        #[test]
        fn white_space_around_an_answer_is_spelling(words in "[a-z]{1,9}( [a-z]{1,9}){0,4}", space in "[ \n]{1,4}") {
            prop_assert_eq!(class(&format!("{space}{words}{space}"), &words), Respelled);
        }

        #[test]
        fn a_word_less_is_a_rewriting(words in prop::collection::vec("[a-z]{1,9}", 2..6), at in any::<prop::sample::Index>()) {
            let mut fewer = words.clone();
            fewer.remove(at.index(words.len()));
            prop_assert_eq!(class(&words.join(" "), &fewer.join(" ")), Rewritten);
        }
    }
}
