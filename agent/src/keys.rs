//! Converts the keystrokes of a model to the bytes that a program in a terminal reads.

use std::borrow::Cow;

/// Returns the bytes of `keystrokes`. These are the bytes of one key if the whole string is its name in tmux's spelling
/// (`C-c`, `Enter`, `Up`, `F5`). Otherwise they are the text itself.
///
/// `application_cursor` is the mode in which programs expect arrow keys as `ESC O A` instead of `ESC [ A`.
pub(crate) fn encode(keystrokes: &str, application_cursor: bool) -> Cow<'_, [u8]> {
    named(keystrokes, application_cursor).unwrap_or(Cow::Borrowed(keystrokes.as_bytes()))
}

/// Whether the whole string is the name of a key.
pub(crate) fn is_key(keystrokes: &str) -> bool {
    named(keystrokes, false).is_some()
}

fn named(name: &str, application_cursor: bool) -> Option<Cow<'static, [u8]>> {
    let (modifiers, key) = Modifiers::split(name);
    if key.eq_ignore_ascii_case("Space") {
        return modifiers.of_character(b' ').map(Cow::Owned);
    }
    if let Some(byte) = single(key) {
        // A single character is text. Only with a modifier is it the name of a key.
        return if modifiers == Modifiers::default() {
            None
        } else {
            modifiers.of_character(byte).map(Cow::Owned)
        };
    }
    let (_, special) = SPECIAL.iter().find(|(known, _)| known.eq_ignore_ascii_case(key))?;
    special.bytes(modifiers, application_cursor)
}

/// The modifiers of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Modifiers {
    shift: bool,
    meta: bool,
    control: bool,
}

impl Modifiers {
    /// Splits the modifiers off a key's name: `C-M-x`, and `^x` for `C-x`.
    fn split(name: &str) -> (Self, &str) {
        let mut modifiers = Self::default();
        let mut key = name;
        loop {
            let Some((held, rest)) = key.split_at_checked(if key.starts_with('^') { 1 } else { 2 }) else {
                return (modifiers, key);
            };
            let modifier = match held {
                "C-" | "c-" | "^" => &mut modifiers.control,
                "M-" | "m-" => &mut modifiers.meta,
                "S-" | "s-" => &mut modifiers.shift,
                _ => return (modifiers, key),
            };
            // `C-` alone and `^` alone are text, because no key follows.
            if rest.is_empty() {
                return (modifiers, key);
            }
            *modifier = true;
            key = rest;
        }
    }

    fn of_character(self, byte: u8) -> Option<Vec<u8>> {
        let byte = match self {
            Self { shift: true, .. } => return None,
            Self { control: true, .. } => control(byte)?,
            _ => byte,
        };
        Some(if self.meta { vec![0x1b, byte] } else { vec![byte] })
    }

    /// Returns the number of the modifiers in the sequences of special keys, as in xterm.
    fn number(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.meta) + 4 * u8::from(self.control)
    }
}

/// The bytes of a key that is not a character.
enum Special {
    /// These bytes.
    Bytes(&'static str),
    /// `ESC [` and this letter, or `ESC O` and the letter in application mode.
    Cursor(char),
    /// `ESC [`, this number and `~`.
    Numbered(u8),
    /// `ESC O` and this letter.
    Function(char),
}

/// The special keys, by tmux's names.
const SPECIAL: [(&str, Special); 33] = [
    ("Enter", Special::Bytes("\r")),
    ("Escape", Special::Bytes("\x1b")),
    ("Tab", Special::Bytes("\t")),
    ("BTab", Special::Bytes("\x1b[Z")),
    ("BSpace", Special::Bytes("\x7f")),
    ("Up", Special::Cursor('A')),
    ("Down", Special::Cursor('B')),
    ("Right", Special::Cursor('C')),
    ("Left", Special::Cursor('D')),
    ("Home", Special::Cursor('H')),
    ("End", Special::Cursor('F')),
    ("IC", Special::Numbered(2)),
    ("Insert", Special::Numbered(2)),
    ("DC", Special::Numbered(3)),
    ("Delete", Special::Numbered(3)),
    ("PPage", Special::Numbered(5)),
    ("PageUp", Special::Numbered(5)),
    ("PgUp", Special::Numbered(5)),
    ("NPage", Special::Numbered(6)),
    ("PageDown", Special::Numbered(6)),
    ("PgDn", Special::Numbered(6)),
    ("F1", Special::Function('P')),
    ("F2", Special::Function('Q')),
    ("F3", Special::Function('R')),
    ("F4", Special::Function('S')),
    ("F5", Special::Numbered(15)),
    ("F6", Special::Numbered(17)),
    ("F7", Special::Numbered(18)),
    ("F8", Special::Numbered(19)),
    ("F9", Special::Numbered(20)),
    ("F10", Special::Numbered(21)),
    ("F11", Special::Numbered(23)),
    ("F12", Special::Numbered(24)),
];

impl Special {
    /// Returns `None` if the key has no bytes with these modifiers, so that no program could see them.
    fn bytes(&self, modifiers: Modifiers, application_cursor: bool) -> Option<Cow<'static, [u8]>> {
        let number = modifiers.number();
        let bytes = match (self, number) {
            (Self::Bytes(bytes), 1) => return Some(Cow::Borrowed(bytes.as_bytes())),
            (Self::Bytes(bytes), _) => {
                // Terminals encode only Meta with these keys, as an escape before the bytes.
                let only_meta = modifiers == Modifiers { meta: true, ..Modifiers::default() };
                return only_meta.then(|| Cow::Owned(format!("\x1b{bytes}").into_bytes()));
            }
            (Self::Cursor(letter), 1) if application_cursor => format!("\x1bO{letter}"),
            (Self::Cursor(letter), 1) => format!("\x1b[{letter}"),
            (Self::Function(letter), 1) => format!("\x1bO{letter}"),
            (Self::Numbered(key), 1) => format!("\x1b[{key}~"),
            (Self::Cursor(letter) | Self::Function(letter), _) => format!("\x1b[1;{number}{letter}"),
            (Self::Numbered(key), _) => format!("\x1b[{key};{number}~"),
        };
        Some(Cow::Owned(bytes.into_bytes()))
    }
}

/// Returns the control character of a key: `c` → 0x03.
fn control(byte: u8) -> Option<u8> {
    match byte {
        b' ' => Some(0),
        b'?' => Some(0x7f),
        byte @ (b'@'..=b'_' | b'a'..=b'z') => Some(byte & 0x1f),
        _ => None,
    }
}

/// Returns the character if `key` is a single printable ASCII character.
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
            ("F3", b"\x1bOR"),
            ("F12", b"\x1b[24~"),
            // tmux ignores the case of names, and accepts modifiers.
            ("enter", b"\r"),
            ("^c", b"\x03"),
            ("C-M-a", b"\x1b\x01"),
            ("M-Enter", b"\x1b\r"),
            ("S-Up", b"\x1b[1;2A"),
            ("c-right", b"\x1b[1;5C"),
            ("C-S-F5", b"\x1b[15;6~"),
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
        for text in [
            "ls -la\n",
            "C-c\n",
            "C-c C-c",
            "echo Enter",
            "C-",
            "C-é",
            "C-cc",
            "",
            "F13",
            "^",
            "M-",
            "a",
            "C-Enter",
            "S-a",
        ] {
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
