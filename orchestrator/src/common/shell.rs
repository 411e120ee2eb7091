//! Quoting for shell commands.

/// Quotes the text as one word of a POSIX shell command, whatever characters it contains.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the text as one word of a shell command for people to copy. It is quoted only if necessary.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { quoted(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(shell_word("jobs/2026-11-21__03-42-00"), "jobs/2026-11-21__03-42-00");
        assert_eq!(shell_word("my jobs/a$b"), "'my jobs/a$b'");
        assert_eq!(shell_word(""), "''");
    }
}
