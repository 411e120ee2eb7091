//! DEC's character set of lines and corners. Programs select it if the terminal may not support UTF-8, such as ncurses
//! in a container's plain locale. The emulator has no character sets, so this module gives it the characters
//! themselves.

use std::borrow::Cow;

const ESCAPE: u8 = 0x1b;
const SHIFT_OUT: u8 = 0x0e;
const SHIFT_IN: u8 = 0x0f;
const BELL: u8 = 0x07;

/// The characters for the bytes `` ` `` to `~` in DEC's special graphics set.
const GRAPHICS: [char; 31] = [
    '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─', '⎼', '⎽', '├',
    '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

/// Tracks the character sets in a program's output.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineDrawing {
    place: EscapeState,
    /// Whether each of the two selectable sets is the line-drawing set.
    sets: [bool; 2],
    /// Whether the second set is active.
    shifted: bool,
}

/// The position of the next byte in an escape sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After the escape.
    Escape,
    /// The next byte names the first or second set.
    Naming(usize),
    /// In another sequence of two or more bytes, until its last byte.
    Intermediate,
    /// In a control sequence, until its last byte.
    Control,
    /// In a string such as a title, until a bell or the next escape.
    String,
}

impl LineDrawing {
    /// Returns the output with lines and corners as Unicode characters.
    pub(crate) fn drawn<'a>(&mut self, output: &'a [u8]) -> Cow<'a, [u8]> {
        let is_plain = |byte: &u8| ![ESCAPE, SHIFT_OUT, SHIFT_IN].contains(byte);
        // The fast path: most output has no escape and needs no copy.
        if self.place == EscapeState::Text && !self.is_drawing() && output.iter().all(is_plain) {
            return Cow::Borrowed(output);
        }
        let mut drawn = Vec::with_capacity(output.len());
        for byte in output {
            match self.next(*byte) {
                Some(character) => drawn.extend(character.encode_utf8(&mut [0; 4]).bytes()),
                None => drawn.push(*byte),
            }
        }
        Cow::Owned(drawn)
    }

    fn is_drawing(&self) -> bool {
        let [first, second] = self.sets;
        if self.shifted { second } else { first }
    }

    /// Returns the replacement of this byte, or `None` if the byte is unchanged.
    fn next(&mut self, byte: u8) -> Option<char> {
        // An escape aborts any unfinished sequence, as in a VT100.
        if byte == ESCAPE {
            self.place = EscapeState::Escape;
            return None;
        }
        self.place = match (self.place, byte) {
            (EscapeState::Text, _) => return self.text(byte),
            (EscapeState::Escape, b'(') => EscapeState::Naming(0),
            (EscapeState::Escape, b')') => EscapeState::Naming(1),
            (EscapeState::Escape, b'[') => EscapeState::Control,
            (EscapeState::Escape, b']' | b'P' | b'X' | b'^' | b'_') => EscapeState::String,
            // `ESC c` resets the terminal, and its character sets.
            (EscapeState::Escape, b'c') => {
                *self = Self::default();
                EscapeState::Text
            }
            (EscapeState::Escape | EscapeState::Intermediate, 0x20..=0x2f) => EscapeState::Intermediate,
            (EscapeState::Naming(which), _) => {
                if let Some(set) = self.sets.get_mut(which) {
                    *set = byte == b'0';
                }
                EscapeState::Text
            }
            (EscapeState::Control, 0x40..=0x7e) | (EscapeState::String, BELL) => EscapeState::Text,
            (EscapeState::Control, _) => EscapeState::Control,
            (EscapeState::String, _) => EscapeState::String,
            (EscapeState::Escape | EscapeState::Intermediate, _) => EscapeState::Text,
        };
        None
    }

    fn text(&mut self, byte: u8) -> Option<char> {
        match byte {
            SHIFT_OUT => self.shifted = true,
            SHIFT_IN => self.shifted = false,
            _ if self.is_drawing() => return GRAPHICS.get(usize::from(byte.checked_sub(b'`')?)).copied(),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawn(output: &[u8]) -> String {
        String::from_utf8(LineDrawing::default().drawn(output).into_owned()).unwrap()
    }

    #[test]
    fn lines_and_corners_are_characters_in_either_set() {
        assert_eq!(drawn(b"\x1b(0lqk\x1b(Blqk"), "\x1b(0┌─┐\x1b(Blqk");
        assert_eq!(drawn(b"\x1b)0lqk\x0elqk\x0flqk"), "\x1b)0lqk\x0e┌─┐\x0flqk");
        assert_eq!(drawn(b"\x1b(0x\x1bcx"), "\x1b(0│\x1bcx");
    }

    #[test]
    fn sequences_among_lines_stay_as_they_are() {
        assert_eq!(
            drawn(b"\x1b(0q\x1b[1;31mq\x1b]0;lqk\x07q\x1b]0;x\x1b\\q"),
            "\x1b(0─\x1b[1;31m─\x1b]0;lqk\x07─\x1b]0;x\x1b\\─"
        );
        assert_eq!(drawn("\u{1b}(0 Aé~".as_bytes()), "\u{1b}(0 Aé·");
    }

    proptest! {
        #[test]
        fn where_output_is_cut_makes_no_difference(output: Vec<u8>, sequences in "(\u{1b}\\(0|\u{1b}\\(B|\u{1b}\\[3m|\u{e}|\u{f}|[a-z]){0,20}", cut: prop::sample::Index) {
            let all = [sequences.as_bytes(), &output].concat();
            let whole = LineDrawing::default().drawn(&all).into_owned();
            let (front, back) = all.split_at(cut.index(all.len() + 1));
            let mut pieces = LineDrawing::default();
            let mut joined = pieces.drawn(front).into_owned();
            joined.extend_from_slice(&pieces.drawn(back));
            prop_assert_eq!(joined, whole);
        }

        #[test]
        fn output_without_sequences_is_not_touched(output in "[^\u{1b}\u{e}\u{f}]*") {
            prop_assert_eq!(LineDrawing::default().drawn(output.as_bytes()), Cow::Borrowed(output.as_bytes()));
        }
    }
}
