//! Quoting for shell commands.

/// Quotes the text as one word of a POSIX shell command, whatever characters it contains.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the text as one word of a POSIX shell command, in quotes only if it needs them.
pub fn word(text: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+=:@%,".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { quoted(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(
            (word("jobs/a-1"), word("a b"), word("")),
            ("jobs/a-1".into(), "'a b'".into(), "''".into())
        );
    }
}
