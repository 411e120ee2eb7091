//! From the keystrokes a model writes to the bytes a program in a terminal reads.

use std::borrow::Cow;

/// The bytes of `keystrokes`: those of one key if the whole string is a key's name as tmux spells it (`C-c`, `Enter`,
/// `Up`, `F5`), else the text as it stands.
///
/// `application_cursor` is the mode in which programs want arrow keys as `ESC O A` instead of `ESC [ A`.
pub(crate) fn encode(keystrokes: &str, application_cursor: bool) -> Cow<'_, [u8]> {
    named(keystrokes, application_cursor).unwrap_or(Cow::Borrowed(keystrokes.as_bytes()))
}

/// Whether the whole string is the name of a key.
pub(crate) fn is_key(keystrokes: &str) -> bool {
    named(keystrokes, false).is_some()
}

fn named(name: &str, application_cursor: bool) -> Option<Cow<'static, [u8]>> {
    if let Some(key) = name.strip_prefix("C-") {
        return control(key).map(|byte| Cow::Owned(vec![byte]));
    }
    if let Some(key) = name.strip_prefix("M-") {
        return single(key).map(|byte| Cow::Owned(vec![0x1b, byte]));
    }
    let cursor = |plain, application| if application_cursor { application } else { plain };
    let bytes: &'static [u8] = match name {
        "Enter" => b"\r",
        "Escape" => b"\x1b",
        "Tab" => b"\t",
        "BTab" => b"\x1b[Z",
        "Space" => b" ",
        "BSpace" => b"\x7f",
        "Up" => cursor(b"\x1b[A", b"\x1bOA"),
        "Down" => cursor(b"\x1b[B", b"\x1bOB"),
        "Right" => cursor(b"\x1b[C", b"\x1bOC"),
        "Left" => cursor(b"\x1b[D", b"\x1bOD"),
        "Home" => cursor(b"\x1b[H", b"\x1bOH"),
        "End" => cursor(b"\x1b[F", b"\x1bOF"),
        "IC" | "Insert" => b"\x1b[2~",
        "DC" | "Delete" => b"\x1b[3~",
        "PPage" | "PageUp" | "PgUp" => b"\x1b[5~",
        "NPage" | "PageDown" | "PgDn" => b"\x1b[6~",
        "F1" => b"\x1bOP",
        "F2" => b"\x1bOQ",
        "F3" => b"\x1bOR",
        "F4" => b"\x1bOS",
        "F5" => b"\x1b[15~",
        "F6" => b"\x1b[17~",
        "F7" => b"\x1b[18~",
        "F8" => b"\x1b[19~",
        "F9" => b"\x1b[20~",
        "F10" => b"\x1b[21~",
        "F11" => b"\x1b[23~",
        "F12" => b"\x1b[24~",
        _ => return None,
    };
    Some(Cow::Borrowed(bytes))
}

/// The control character of a key: `c` → 0x03.
fn control(key: &str) -> Option<u8> {
    if key == "Space" {
        return Some(0);
    }
    match single(key)? {
        b'?' => Some(0x7f),
        byte @ (b'@'..=b'_' | b'a'..=b'z') => Some(byte & 0x1f),
        _ => None,
    }
}

/// The one printable ASCII character that `key` is.
fn single(key: &str) -> Option<u8> {
    match key.as_bytes() {
        [byte @ 0x21..=0x7e] => Some(*byte),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_keys_become_their_bytes() {
        for (name, bytes) in [
            ("C-c", &b"\x03"[..]),
            ("C-D", b"\x04"),
            ("C-z", b"\x1a"),
            ("C-[", b"\x1b"),
            ("C-\\", b"\x1c"),
            ("C-Space", b"\0"),
            ("C-?", b"\x7f"),
            ("M-f", b"\x1bf"),
            ("Enter", b"\r"),
            ("Escape", b"\x1b"),
            ("Tab", b"\t"),
            ("PageDown", b"\x1b[6~"),
        ] {
            assert_eq!(encode(name, false), bytes, "{name}");
        }
    }

    #[test]
    fn arrows_follow_the_mode_that_the_program_asked_for() {
        assert_eq!(encode("Up", false), &b"\x1b[A"[..]);
        assert_eq!(encode("Up", true), &b"\x1bOA"[..]);
    }

    #[test]
    fn anything_else_is_typed_as_it_stands() {
        for text in ["ls -la\n", "C-c\n", "C-c C-c", "echo Enter", "C-", "C-é", "C-cc", "enter", "", "F13"] {
            assert_eq!(encode(text, false), text.as_bytes(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn text_with_a_newline_is_never_a_key(before in any::<String>(), after in any::<String>()) {
            let text = format!("{before}\n{after}");
            prop_assert_eq!(encode(&text, true), text.as_bytes());
        }
    }
}
