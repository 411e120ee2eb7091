//! Cleans the text of other programs for files and messages that people read.

/// Returns the text without escape sequences (colours, cursor movement) and without control characters other than white
/// space.
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_terminal_understands_is_taken_out() {
        assert_eq!(plain("\u{1b}[91mred\u{1b}[0m\ttab, größe\n"), "red\ttab, größe\n");
        assert_eq!(plain("\u{1b}]0;a title\u{7}then\u{8} text"), "then text");
        assert_eq!(plain("broken off \u{1b}[3"), "broken off ");
    }

    proptest::proptest! {
        #[test]
        fn text_without_control_characters_stays_as_it_is(text in "\\PC{0,60}") {
            proptest::prop_assert_eq!(plain(&text), text);
        }

        #[test]
        fn no_escape_is_left_of_any_text(text in "([a-z0-9;?]|\\[|\u{1b}|\u{7}|\u{9b}|\n|ö){0,40}") {
            let left = plain(&text).contains('\u{1b}');
            proptest::prop_assert!(!left);
        }
    }
}
