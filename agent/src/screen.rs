//! The screen of a terminal, without I/O: the pure part of [`Terminal`](crate::terminal::Terminal). The viewer plays
//! recordings in it.
//!
//! Its input is bytes and its output is text. Rows that scroll off the top are stored until the next observation, so an
//! observation has all output since the last one. The memory is bounded for any amount of output.

use std::fmt::Write as _;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vt100::capture::{
    BasicFormattedCaptureRange, BasicFormattedCaptureState, RowContents, basic_formatted_to_plain,
};

use crate::line_drawing::LineDrawing;
use crate::truncate::{Clipped, LIMIT};

/// The size of a terminal. A zero counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// The number of lines on the screen.
    pub rows: u16,
    /// The number of characters on a line.
    pub cols: u16,
}

impl Default for TerminalSize {
    /// 40 rows of 160 columns, the size of Terminus-2's window.
    fn default() -> Self {
        Self { rows: 40, cols: 160 }
    }
}

/// The result of an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The output since the last observation, from the start of the line with the cursor at that time.
    NewOutput(String),
    /// The whole screen, because there is no new output, or because a program redrew earlier text.
    Screen(String),
}

impl Observation {
    /// Returns the text, at most about 10 000 bytes.
    pub fn text(&self) -> &str {
        match self {
            Self::NewOutput(text) | Self::Screen(text) => text,
        }
    }
}

/// A screen emulator and the output that scrolled off it since the last observation.
pub struct Screen {
    emulator: vt100::Parser<Effects>,
    line_drawing: LineDrawing,
    /// The first bytes of a character whose other bytes have not arrived.
    unfinished: Vec<u8>,
    size: TerminalSize,
    /// The main screen at the last observation, or `None` before the first one.
    seen: Option<String>,
}

/// The number of bytes per call of the emulator. A reset loses at most this much.
const PIECE: usize = 1024;

fn emulator(size: TerminalSize) -> vt100::Parser<Effects> {
    let rows = NonZeroU16::new(size.rows).unwrap_or(NonZeroU16::MIN);
    let cols = NonZeroU16::new(size.cols).unwrap_or(NonZeroU16::MIN);
    // The emulator stores no scrollback: rows that leave the screen go to `Effects::on_scroll`.
    vt100::Parser::new_with_callbacks(rows, cols, 0, Effects::new(0))
}

impl Screen {
    /// Returns an empty screen.
    pub fn new(size: TerminalSize) -> Self {
        let line_drawing = LineDrawing::default();
        Self { emulator: emulator(size), line_drawing, unfinished: Vec::new(), size, seen: None }
    }

    /// Processes program output. Returns the terminal's replies, which are usually empty.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut output = std::mem::take(&mut self.unfinished);
        output.extend_from_slice(&self.line_drawing.drawn(bytes));
        self.unfinished = output.split_off(output.len() - unfinished(&output));
        for piece in pieces(&output) {
            // The emulator panics on rare output, such as a variation selector that widens the character in the last
            // column. The property test below found this. A program in a terminal must not be able to end the trial
            // with such output.
            let fed = catch_unwind(AssertUnwindSafe(|| self.emulator.process(piece)));
            if fed.is_err() {
                self.reset();
            }
        }
        std::mem::take(&mut self.emulator.callbacks_mut().replies)
    }

    /// Replaces the emulator with an empty one and shows a message.
    fn reset(&mut self) {
        tracing::warn!("the terminal emulator failed on some output and was reset");
        self.emulator = emulator(self.size);
        self.line_drawing = LineDrawing::default();
        self.seen = None;
        self.emulator.process(b"[the terminal could not show some output and was cleared]\r\n");
    }

    /// Returns the screen as text, without trailing blank lines.
    pub fn text(&self) -> String {
        self.rows_after(&mut BasicFormattedCaptureState::new())
    }

    /// Whether the program requested the application mode of the arrow keys.
    pub(crate) fn application_cursor(&self) -> bool {
        self.emulator.screen().application_cursor()
    }

    /// Returns the output since the last observation, or else the screen.
    pub(crate) fn observe(&mut self) -> Observation {
        if self.emulator.screen().alternate_screen() {
            // Full-screen programs have no history. The position in the main screen remains until they end.
            return Observation::Screen(Clipped::whole(&self.text()).to_string());
        }
        let new = self.new_output();
        let screen = self.text();
        let observation = match new {
            Some(text) => Observation::NewOutput(text),
            None => Observation::Screen(Clipped::whole(&screen).to_string()),
        };
        // The head of the next observation begins with this screen, and must have room for a whole observation after
        // it.
        *self.emulator.callbacks_mut() = Effects::new(screen.len() + LIMIT);
        self.seen = Some(screen);
        observation
    }

    /// Returns the text after the last observation, if that is unchanged and there is new text.
    fn new_output(&self) -> Option<String> {
        let seen = self.seen.as_deref()?;
        let effects = self.emulator.callbacks();
        // A copy of the capture state, because the rows on the screen may still change.
        let rest = self.rows_after(&mut effects.capture.clone());
        if effects.scrolled.dropped == 0 {
            let mut all = effects.scrolled.head.clone();
            all.push_str(&effects.scrolled.tail);
            all.push_str(&rest);
            new_since(seen, &all).map(|new| Clipped::whole(new).to_string())
        } else {
            let front = effects.scrolled.head.strip_prefix(split_prompt(seen).0)?;
            let mut back = effects.scrolled.tail.clone();
            back.push_str(&rest);
            Some(Clipped { front, missing: effects.scrolled.dropped, back: &back }.to_string())
        }
    }

    /// Returns the screen's rows as plain text that continues the text already written with `capture`.
    fn rows_after(&self, capture: &mut BasicFormattedCaptureState) -> String {
        let mut formatted = String::new();
        let range = BasicFormattedCaptureRange::Full(capture);
        let written = self.emulator.screen().write_contents_formatted_basic(&mut formatted, range);
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
        let mut plain: String = basic_formatted_to_plain(&formatted).collect();
        plain.truncate(plain.trim_end_matches(['\n', ' ']).len());
        plain
    }
}

/// Splits output into pieces of at most [`PIECE`] bytes, none of which ends within a character. vte 0.15 loses text after a
/// character that is cut: it drops the rest of the bytes that it took to complete the character.
fn pieces(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = output;
    std::iter::from_fn(move || {
        let length = match rest.get(..PIECE) {
            Some(piece) if rest.len() > PIECE => PIECE - unfinished(piece),
            _ => rest.len(),
        };
        let (piece, behind) = rest.split_at_checked(length)?;
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Returns the number of bytes at the end that begin a character of UTF-8 and lack its last bytes: 0 to 3.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    for (count, byte) in (1..=3).zip(bytes.iter().rev()) {
        let length = match byte {
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => 1,
        };
        return if length > count { count } else { 0 };
    }
    0
}

/// Returns the part of `all` after the text `seen` of an earlier observation. `None` if the earlier text changed or
/// there is no new text. The result begins with the line of the prompt.
pub(crate) fn new_since<'a>(seen: &str, all: &'a str) -> Option<&'a str> {
    let (above, line) = split_prompt(seen);
    let new = all.strip_prefix(above)?;
    // Trailing blanks are no output: they come and go with the cursor.
    let unchanged = new.trim_end() == line.trim_end();
    (!unchanged && !new.trim().is_empty()).then_some(new)
}

/// Splits off the last line. Only the lines above it must be unchanged, because the line of the prompt grows while the
/// user types.
fn split_prompt(seen: &str) -> (&str, &str) {
    let last_line = seen.rfind('\n').map_or(0, |newline| newline + 1);
    seen.split_at_checked(last_line).unwrap_or(("", seen))
}

/// The emulator's output apart from the screen.
struct Effects {
    scrolled: Scrolled,
    capture: BasicFormattedCaptureState,
    replies: Vec<u8>,
}

impl Effects {
    fn new(head_limit: usize) -> Self {
        Self {
            scrolled: Scrolled { head: String::new(), head_limit, tail: String::new(), dropped: 0 },
            capture: BasicFormattedCaptureState::new(),
            replies: Vec::new(),
        }
    }

    /// The maximal number of reply bytes. Replies have a few bytes each and are taken after every chunk of output, so
    /// only a program out of control exceeds this.
    const REPLY_LIMIT: usize = 4096;

    fn reply(&mut self, answer: &str) {
        if self.replies.len() < Self::REPLY_LIMIT {
            self.replies.extend_from_slice(answer.as_bytes());
        }
    }
}

impl vt100::Callbacks for Effects {
    fn on_scroll(&mut self, row: RowContents<'_>, alternate_screen: bool) {
        if alternate_screen {
            return;
        }
        let mut formatted = String::new();
        if row.write_formatted_basic(&mut formatted, &mut self.capture).is_ok() {
            basic_formatted_to_plain(&formatted).for_each(|text| self.scrolled.push(text));
        }
    }

    /// Replies to requests for which programs such as editors and line editors wait. The values are those of a VT100
    /// with advanced video, as in tmux.
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        first: Option<u8>,
        second: Option<u8>,
        params: &[&[u16]],
        command: char,
    ) {
        let param = params.first().and_then(|values| values.first()).copied().unwrap_or(0);
        match (first, second, command, param) {
            (None, None, 'n', 5) => self.reply("\x1b[0n"),
            (None, None, 'n', 6) => {
                let (row, col) = screen.cursor_position();
                let mut answer = String::new();
                let written = write!(answer, "\x1b[{};{}R", u32::from(row) + 1, u32::from(col) + 1);
                debug_assert!(written.is_ok(), "writing to a String cannot fail");
                self.reply(&answer);
            }
            (None, None, 'c', 0) => self.reply("\x1b[?1;2c"),
            (Some(b'>'), None, 'c', 0) => self.reply("\x1b[>0;0;0c"),
            _ => {}
        }
    }
}

/// Text that scrolled off: its beginning, its end, and the number of dropped bytes between these.
struct Scrolled {
    head: String,
    head_limit: usize,
    tail: String,
    dropped: usize,
}

impl Scrolled {
    fn push(&mut self, text: &str) {
        if self.tail.is_empty() && self.head.len() < self.head_limit {
            self.head.push_str(text);
            return;
        }
        self.tail.push_str(text);
        // Truncates at twice the limit, so that each byte is moved at most once.
        if self.tail.len() > 2 * LIMIT {
            let cut = self.tail.ceil_char_boundary(self.tail.len() - LIMIT);
            self.tail.drain(..cut);
            self.dropped += cut;
        }
    }
}

#[cfg(test)]
mod tests;
